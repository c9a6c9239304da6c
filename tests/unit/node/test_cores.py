"""The CPUs that a process may use, and the binding of a process, on the real kernel."""

import os
import subprocess
import sys

from mxcluster.model.node_record import Core
from mxcluster.node import cores

BIND = "import os; from mxcluster.node import cores; cores.bind(os.environ); print(%s)"
OWN = "sorted(os.sched_getaffinity(0))"


def bound(cpus, shown=OWN):
    """Return a process that has bound itself to the CPUs in the text `cpus`."""
    return subprocess.run(
        [sys.executable, "-c", BIND % shown],
        env=dict(os.environ, MXCLUSTER_CPUS=cpus),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_process_runs_on_its_own_cpus_with_its_threads():
    last = max(os.sched_getaffinity(0))
    of_thread = "__import__('concurrent.futures').futures.ThreadPoolExecutor().submit(lambda: %s)"
    done = bound(str(last), (of_thread % OWN) + ".result()")
    assert done.returncode == 0 and done.stdout.decode() == "[%d]\n" % last, done
    assert bound("").stdout.decode() == "%s\n" % sorted(os.sched_getaffinity(0))


def test_a_cpu_of_others_is_refused():
    absent = max(os.sched_getaffinity(0)) + 1
    done = bound("0,%d" % absent)
    assert done.returncode == 1 and done.stdout == b"", done
    assert b"mxcluster: the job may not use the CPUs %d of this node" % absent in done.stderr, done
    assert "run provision.yml" in cores.problems([absent])[0]
    assert cores.problems(os.sched_getaffinity(0)) == []


def test_only_cpus_that_this_process_may_use_count():
    mine = max(os.sched_getaffinity(0))
    code = "from mxcluster.node import cores; print(cores.usable())"
    found = subprocess.check_output(["taskset", "-c", str(mine), sys.executable, "-c", code])
    assert "Core(cpus=[%d]" % mine in found.decode() and found.decode().count("Core(") == 1
    everything = [cpu for core in cores.usable() for cpu in core.cpus]
    assert sorted(everything) == sorted(os.sched_getaffinity(0))


def test_siblings_and_numa_nodes_come_from_the_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 6})
    for cpu, (siblings, memory) in enumerate([("0,4", 1), ("1-2", 0), ("1-2", 0), ("3,7\n", 0)]):
        place = tmp_path / ("cpu%d" % cpu)
        (place / "topology").mkdir(parents=True)
        (place / ("node%d" % memory)).mkdir()
        (place / "topology" / "thread_siblings_list").write_text(siblings)
    (tmp_path / "cpu6").mkdir()  # without facts
    assert cores.usable(str(tmp_path)) == [
        Core(cpus=[1, 2], memory=0),
        Core(cpus=[3], memory=0),
        Core(cpus=[6], memory=0),
        Core(cpus=[0], memory=1),
    ]


def test_slurm_limits_the_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert cores.granted({"SLURM_CPUS_ON_NODE": "4"}) == 4.0
    assert cores.granted({"SLURM_CPUS_ON_NODE": "8"}) is None, "Slurm has bound the job"
    assert cores.granted({"SLURM_CPUS_ON_NODE": "many"}) is cores.granted({}) is None
