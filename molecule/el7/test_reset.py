"""reset.yml leaves the driver and CUDA of a node, and removes both on request."""

import re

import pytest

LIMIT = ("--limit", "gpu1")
OF_NVIDIA = re.compile(r"cuda|cublas|nvidia")
# All names of mxcluster, of its CUDA and of its driver in folders of the system. ls fails if one of
# them is missing; the test compares the list.
TRACES = """
ls -d /usr/local/cuda* /etc/profile.d/mxcluster* /etc/ld.so.conf.d/cuda* /opt/mxcluster \\
    /etc/yum.repos.d/mxcluster* /etc/pki/rpm-gpg/*mxcluster* /etc/modprobe.d/mxcluster* \\
    /etc/dkms/nvidia.conf /lib/modules/*/mxcluster* /etc/mxcluster \\
    /etc/systemd/system/mxcluster* 2>/dev/null || true
"""


@pytest.mark.soak  # test_reset_decisions.py has the choice; nothing else removes a driver
def test_driver_and_cuda_stay_unless_the_user_asks(cluster, nodes):
    before, traces = nodes.packages("gpu1"), cluster.shell("gpu1", TRACES)
    of_nvidia = {name for name in before if OF_NVIDIA.search(name)}
    assert of_nvidia and "/usr/local/cuda-9.2" in traces

    checked = cluster.play("reset.yml", *LIMIT, "--check", also="cuda,driver")
    assert checked.code == 0, checked.output
    told = re.findall(r"to remove the package (\S+)", checked.output)
    assert set(told) == of_nvidia, checked.output
    assert nodes.packages("gpu1") == before and cluster.shell("gpu1", TRACES) == traces

    result = cluster.play("reset.yml", *LIMIT, also="data")
    assert result.code == 0 and nodes.packages("gpu1") == before, result.output
    for line in ("the NVIDIA driver: the driver stays", "/usr/local/cuda-9.2: CUDA stays"):
        assert "stays     " + line in result.output, result.output
    left = cluster.shell("gpu1", TRACES)
    assert "/opt/mxcluster" not in left and "/usr/local/cuda-9.2" in left, left

    cluster.shell("gpu1", ": >/var/log/stand-in")
    result = cluster.play("reset.yml", *LIMIT, also="cuda,driver")
    assert result.code == 0 and cluster.shell("gpu1", TRACES) == "", result.output
    assert nodes.packages("gpu1") == {
        name: version for name, version in before.items() if name not in of_nvidia
    }
    calls = cluster.shell("gpu1", "cat /var/log/stand-in")
    assert re.search("^grubby .*--remove-args=.*nouveau", calls, re.M), calls
    assert re.search("^dracut --force /boot/initramfs-", calls, re.M), calls
    assert "mxcluster" not in cluster.shell("gpu1", "cat /etc/yum/pluginconf.d/versionlock.list")
    again = cluster.play("reset.yml", *LIMIT, also="cuda,driver")
    log = max(cluster.state.glob("reset-*.log")).read_text()
    assert again.code == 0 and re.findall(r" changed=(\d+) ", log) == ["0"], log
