"""The speed of this machine: products of matrices in a real child, and a real disk."""

import os

import pytest

from mxcluster.model.check_answer import CheckError
from mxcluster.model.node_requests import SpeedRequest
from mxcluster.node import health_checks, node_speed


@pytest.mark.slow
def test_products_and_disk_have_figures_and_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(node_speed, "MATMUL_SECONDS", 0.05)
    variables = {"OMP_NUM_THREADS": "1", "MXCLUSTER_CPUS": "%d" % max(os.sched_getaffinity(0))}
    request = SpeedRequest(folder=str(tmp_path / "absent" / "jobs"), variables=variables)
    found = health_checks.speed(request)
    assert found.matmul > 0.01, found
    assert found.disk.write > 0.1 and found.disk.read > 0.1, found
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.slow
def test_the_time_of_fsync_counts(tmp_path, monkeypatch):
    fast = node_speed.disk(str(tmp_path))
    monkeypatch.setattr(node_speed, "DISK_SECONDS", 0.5)
    monkeypatch.setattr(node_speed.os, "fsync", lambda descriptor: __import__("time").sleep(1))
    slow = node_speed.disk(str(tmp_path))
    assert slow.write < 17 and slow.write < fast.write, (slow, fast)


def test_a_failed_measurement_has_its_error(tmp_path):
    request = SpeedRequest(folder="/proc/self", variables={"MXCLUSTER_CPUS": "8000"})
    found = health_checks.speed(request)
    assert isinstance(found.disk, CheckError), found
    assert "may not use the CPUs 8000" in found.matmul.error, found
    broken = tmp_path / "numpy.py"
    broken.write_text("raise ImportError('no BLAS here')")
    with pytest.raises(OSError, match="no BLAS here"):
        node_speed.matmul({"PYTHONPATH": "%s:%s" % (tmp_path, os.environ.get("PYTHONPATH", ""))})
