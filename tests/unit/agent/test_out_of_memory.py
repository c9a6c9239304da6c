"""OOM kills, as kernels of different ages report them."""

import os

import pytest

from mxcluster.agent import out_of_memory

LOG = "3,1000,5,-;Killed process %d (python) total-vm:1kB\n"


def write(root, **texts):
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    "cgroup,counter",
    [
        ("0::/system.slice/job.service\n", "sys/fs/cgroup/system.slice/job.service/memory.events"),
        (
            "4:memory:/system.slice/job\n1:name=systemd:/x\n",
            "sys/fs/cgroup/memory/system.slice/job/memory.oom_control",
        ),
    ],
)
def test_an_oom_kill_in_the_units_cgroup(tmp_path, cgroup, counter):
    write(tmp_path, proc__self__cgroup=cgroup, proc__vmstat="nr_free_pages 5\noom_kill 3\n")
    path = tmp_path / counter
    path.parent.mkdir(parents=True)
    path.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    kills = out_of_memory.Kills(str(tmp_path))
    assert kills.explain(123) is None
    path.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    write(tmp_path, proc__vmstat="nr_free_pages 5\noom_kill 4\n")
    assert "unit" in kills.explain(123)
    assert kills.explain(124) is None, "one kill explains one death"


def test_an_oom_kill_on_the_node(tmp_path):
    write(tmp_path, proc__vmstat="oom_kill 3\n")
    kills = out_of_memory.Kills(str(tmp_path))
    write(tmp_path, proc__vmstat="oom_kill 4\n")
    assert "node" in kills.explain(123)


def test_an_oom_kill_in_a_container_shows_on_the_machine_alone(tmp_path):
    write(tmp_path, proc__self__cgroup="0::/agent\n", proc__vmstat="oom_kill 3\n")
    write(tmp_path, sys__fs__cgroup__agent__memory_dot_events="oom 0\noom_kill 1\n")
    kills = out_of_memory.Kills(str(tmp_path))
    write(tmp_path, proc__vmstat="oom_kill 4\n")
    assert "container" in kills.explain(None, contained=True)
    assert kills.explain(None, contained=True) is None, "one kill explains one death"


def test_an_old_or_foreign_oom_kill_explains_no_death(tmp_path):
    write(tmp_path, proc__vmstat="oom_kill 3\n")
    kills = out_of_memory.Kills(str(tmp_path))
    write(tmp_path, proc__vmstat="oom_kill 4\n")
    for now in (100.0, 101.0, 111.0):
        kills.look(now)
    assert kills.explain(123) is None, "the kill is more than ten seconds old"
    write(tmp_path, proc__vmstat="oom_kill 5\n")
    kills.look(122.0)
    assert "node" in kills.explain(123), "the kill is recent"

    write(
        tmp_path,
        proc__self__cgroup="0::/job\n",
        sys__fs__cgroup__job__memory_dot_events="oom 0\noom_kill 0\n",
    )
    kills = out_of_memory.Kills(str(tmp_path))
    write(tmp_path, proc__vmstat="oom_kill 6\n")
    assert kills.explain(123) is None, "the kill is in another cgroup"
    write(
        tmp_path,
        proc__vmstat="oom_kill 7\n",
        sys__fs__cgroup__job__memory_dot_events="oom 0\noom_kill 1\n",
    )
    assert "node" in kills.explain(123), "the kill is in this cgroup, which was below its limit"
    write(tmp_path, sys__fs__cgroup__job__memory_dot_events="oom 1\noom_kill 2\n")
    assert "unit" in kills.explain(123)


def test_a_kernel_without_oom_counters_is_read_through_its_log(tmp_path):
    """CentOS 7 has no oom_kill in memory.oom_control and vmstat, but a readable kernel log."""
    write(
        tmp_path,
        proc__self__cgroup="4:memory:/x\n",
        proc__vmstat="nr_free_pages 5\n",
        dev__kmsg=LOG % 999,
    )
    write(
        tmp_path,
        sys__fs__cgroup__memory__x__memory_dot_oom_control="oom_kill_disable 0\nunder_oom 0\n",
    )
    assert out_of_memory.counters(str(tmp_path)) == {}
    kills = out_of_memory.Kills(str(tmp_path))
    with open(str(tmp_path / "dev" / "kmsg"), "a") as log:
        log.write(LOG % 1234 + LOG % 1235)
    assert kills.explain(123) is None and "node" in kills.explain(1234)
    assert "node" in kills.explain(1235)
    assert kills.explain(999) is None, "another process had this pid before the job began"


def test_no_oom_kill_is_found_without_readable_files(tmp_path):
    assert out_of_memory.Kills(str(tmp_path)).explain(os.getpid()) is None
