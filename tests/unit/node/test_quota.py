"""The quota of a control group, its use, and the time of a step that it allows."""

import os

import pytest

from mxcluster.node import processes, quota


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Return the folders of the process under both versions of control groups: (new, old)."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(processes, "CGROUPS", str(tmp_path))
    lines = b"7:cpu,cpuacct:/old\n0::/a/b\n"
    monkeypatch.setattr(processes, "read", lambda pid, name: lines)
    new, old = tmp_path / "a" / "b", tmp_path / "cpu" / "old"
    for folder in (new, old):
        folder.mkdir(parents=True)
    (old / "cpu.cfs_period_us").write_text("100000\n")
    return new, old


def cpus():
    found = quota.tightest()
    return found.cpus if found else None


def test_the_tightest_quota_of_all_folders_above_counts(groups):
    new, old = groups
    assert cpus() is None
    (new / "cpu.max").write_text("max 100000\n")
    (new.parent / "cpu.max").write_text("250000 100000\n")
    assert cpus() == 2.5, "the quota of the folder above"
    (old / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpus() == 2.5
    (old / "cpu.cfs_quota_us").write_text("150000\n")
    assert cpus() == 1.5
    for text in ("900000 100000", "x y", "1 0", ""):
        (new.parent / "cpu.max").write_text(text)
        (old / "cpu.cfs_quota_us").write_text("-1\n")
        assert cpus() is None, text


def test_the_kernel_counts_what_a_group_uses(groups, tmp_path):
    new, old = groups
    (new.parent / "cpu.max").write_text("60000 100000\n")
    assert quota.tightest().use() is None, "an old kernel"
    stat = "usage_usec 2500000\nuser_usec 1\nnr_throttled 7\nthrottled_usec 400000\n"
    (new.parent / "cpu.stat").write_text(stat)
    assert quota.tightest().use() == (2.5, 0.4)
    (old / "cpu.cfs_quota_us").write_text("15000\n")
    assert quota.tightest().cpus == 0.15 and quota.tightest().use() is None
    (old / "cpu.stat").write_text("nr_periods 9\nnr_throttled 3\nthrottled_time 300000000\n")
    (old / "cpuacct.usage").write_text("1500000000\n")
    assert quota.tightest().use() == (1.5, 0.3), "both hierarchies in one folder"
    (old / "cpuacct.usage").unlink()
    (tmp_path / "cpuacct" / "old").mkdir(parents=True)
    (tmp_path / "cpuacct" / "old" / "cpuacct.usage").write_text("1250000000\n")
    assert quota.tightest().use() == (1.25, 0.3), "a hierarchy of its own"


def test_a_step_lasts_as_long_as_its_cpu_time_under_the_quota(groups):
    new, _ = groups
    (new / "cpu.max").write_text("15000 100000\n")
    (new / "cpu.stat").write_text("usage_usec 1000000\n")
    steps = quota.Steps(quota.tightest())
    (new / "cpu.stat").write_text("usage_usec 1030000\n")
    assert steps.ended() == pytest.approx(0.2), "30 ms of CPU time at 0.15 CPUs"
    assert steps.ended() == 0
    (new / "cpu.stat").write_text("usage_usec 1045000\n")
    assert steps.ended() == pytest.approx(0.1)
    (new / "cpu.stat").unlink()
    assert steps.ended() == 0 and quota.Steps(None).ended() == 0


def test_a_work_under_a_small_quota_comes_rarely():
    """A tenth of a second of CPU time every 13 s is 5 % of 0.15 CPUs."""
    assert quota.least_pause(0.1, 0.05, quota.Quota(0.15, "", True)) == pytest.approx(
        13.3, rel=0.01
    )
    assert quota.least_pause(0.1, 0.05, None) == 0
    assert quota.least_pause(0.1, 0.05, quota.Quota(1.0, "", True)) == 0
