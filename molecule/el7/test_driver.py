"""NVIDIA's driver on CentOS 7, with the traps of the real repositories (stand_in/packages.yml).

The tests run in their order: some leave a driver to the next one, because a node costs minutes.
They run before test_el7.py; the inventory sets nvidia_driver_reboot to false, so that the first
installation succeeds although gpu2 needs a restart.
"""

import json
import re
import time

import pytest

from tests.often import seldom

V = "470.82.01"  # the newest version whose packages are all there
SET = {
    *("nvidia-driver-latest-dkms" + end for end in ("", "-libs", "-cuda", "-cuda-libs", "-NVML")),
    *("nvidia-driver-latest-dkms" + end for end in ("-NvFBCOpenGL", "-devel")),
    *("nvidia-%s-latest-dkms" % name for name in ("modprobe", "xconfig", "persistenced")),
    "kmod-nvidia-latest-dkms",
}
RUNNING, NEWEST = "3.10.0-957.el7.x86_64", "3.10.0-1160.119.1.el7.x86_64"  # of gpu2
DRIVER = ("--limit", "gpu2", "--tags", "nvidia_driver")
LOCKS = "/etc/yum/pluginconf.d/versionlock.list"


def drivers(nodes, name):
    found = nodes.packages(name)
    return {one: found[one] for one in found if re.match(r"(kmod-)?nvidia-", one)}


def test_the_newest_complete_driver_of_the_branch_is_installed(nodes, name):
    """470.182.03 has no kmod, 550 is another branch, and branch-470 would hold kernels back."""
    assert drivers(nodes, name) == dict.fromkeys(SET, V)
    assert "nvidia-driver-latest-dkms" not in nodes.packages("head")


def test_every_package_of_the_driver_is_held(cluster, name):
    held = cluster.shell(name, "grep -v '^#' " + LOCKS).splitlines()
    assert sorted(held) == sorted("3:%s-%s-1.el7.*" % (one, V) for one in SET)


def test_the_module_is_built_for_the_running_and_for_the_newest_kernel(cluster):
    """dkms builds for the running kernel only, and a restart boots the newest."""
    for kernel in (RUNNING, NEWEST):
        assert cluster.shell("gpu2", "modinfo -k %s -F version nvidia" % kernel) == V
    assert set(re.findall(r"kernel-devel-\S+", cluster.shell("gpu2", "rpm -q kernel-devel"))) == {
        "kernel-devel-" + kernel for kernel in (RUNNING, NEWEST)
    }


def test_headers_of_an_older_kernel_come_from_its_own_archive(server):
    found = server.requests("kernel-devel-3.10.0-957.el7.x86_64.rpm")
    assert [line["path"].split("/")[2:4] for line in found] == [["7.6.1810", "os"]]


def test_dkms_runs_at_every_boot_without_weak_modules(cluster, name):
    assert cluster.shell(name, "systemctl is-enabled dkms") == "enabled"
    assert 'NO_WEAK_MODULES="yes"' in cluster.shell(name, "cat /etc/dkms/nvidia.conf")


def test_a_node_without_nouveau_needs_no_restart(cluster):
    listed = cluster.shell("gpu1", "nvidia-smi --query-gpu=driver_version --format=csv,noheader")
    assert listed.split() == [V, V]
    assert "reboot" not in cluster.shell("gpu1", "cat /var/log/stand-in")


def test_no_repository_of_the_installation_stays_enabled(cluster):
    """Repositories of mxcluster and of NVIDIA's RPMs are disabled; the RPMs enable their own."""
    enabled = cluster.shell("gpu2", "yum -q repolist enabled")
    assert not re.search("mxcluster|cuda|nvidia|epel", enabled), enabled
    assert re.search("^base ", enabled, re.M), enabled


def test_an_update_of_the_system_changes_neither_driver_nor_cuda(cluster, nodes):
    before = nodes.packages("gpu2")
    cluster.shell("gpu2", "yum -y -q update")
    assert nodes.packages("gpu2") == before


def test_an_update_from_nvidias_repository_keeps_the_held_driver(cluster, nodes):
    cluster.shell("gpu1", "yum -y -q --enablerepo=mxcluster-nvidia-driver update")
    assert drivers(nodes, "gpu1") == dict.fromkeys(SET, V)
    # The lock does it: without the plugin the newest driver would come.
    offered = cluster.node("gpu1").run(
        "yum --disableplugin=versionlock --enablerepo=mxcluster-nvidia-driver check-update"
    )
    assert "550.163.01" in offered.stdout, offered
    assert offered.stdout.startswith("Loaded plugins: stand-in of mxcluster for yum 3"), offered


def test_the_drivers_repository_shows_nothing_but_the_driver(cluster, server):
    """yum asks the repository. By default `list` of yum 3 reads a cache of any age."""
    asked = len(server.requests("/rhel7/x86_64/repodata/repomd.xml"))
    listed = cluster.shell(
        "gpu1", "yum -q --disablerepo='*' --enablerepo=mxcluster-nvidia-driver list available"
    )
    assert len(server.requests("/rhel7/x86_64/repodata/repomd.xml")) == asked + 1
    names = {line.split()[0] for line in listed.splitlines() if ".x86_64" in line}
    assert names and not [one for one in names if not re.match("(kmod-)?nvidia-|yum-pl", one)]


def test_a_restart_that_is_needed_is_reported_everywhere(cluster, nodes):
    """The output, the record and status.yml name the restart, and train.yml refuses the node."""
    message = nodes.refused(nvidia_driver_reboot="auto")
    assert "restart gpu2, then run provision.yml again" in message
    assert "but nouveau is loaded" in message and "gpu1: driver" not in message
    record = json.loads((cluster.state / "nodes" / "gpu2.json").read_text())
    assert record["driver"] == {"installed": V, "loaded": None, "nouveau": True}
    status = cluster.play("status.yml")
    assert "restart needed gpu2: driver" in status.output, status.output
    written = json.loads((cluster.state / "status.json").read_text())
    assert list(written["restart_needed"]) == ["gpu2"]
    job = cluster.train(gpus="")
    assert job.result.code != 0 and "restart gpu2, then run provision.yml" in job.result.output


@pytest.mark.parametrize("tag", [seldom("mxnet"), "ssh_mesh"])
def test_a_restart_that_is_refused_by_the_user_is_a_warning(nodes, tag):
    """The report of a restart runs with every tag, and the driver's other tasks do not."""
    result = nodes.provision("--limit", "gpu2", "--tags", tag, nvidia_driver_reboot=False)
    assert "Warning: gpu2: driver" in result.output, result.output


def test_a_node_in_use_is_not_restarted(cluster, nodes):
    """A program has a GPU open: the message names the program, and the node keeps running."""
    cluster.shell("gpu2", "sleep 1000 <>/dev/nvidia0 >/dev/null 2>&1 & echo $! >/run/gpu-user")
    message = nodes.refused("--limit", "gpu2", nvidia_driver_reboot=True)
    cluster.shell("gpu2", "kill $(cat /run/gpu-user); rm /dev/nvidia0")
    assert re.search(r"end sleep \(pid \d+\), restart gpu2, then run provision.yml", message), (
        message
    )
    assert "shutdown" not in cluster.shell("gpu2", "cat /var/log/stand-in")


def test_nouveau_is_off_after_a_restart_on_request(cluster, nodes):
    called = cluster.shell("gpu2", "cat /var/log/stand-in")
    assert "modprobe -r nouveau" in called, called
    for kernel in (RUNNING, NEWEST):
        assert called.count("dracut --force /boot/initramfs-%s.img %s" % (kernel, kernel)) == 1
    # NVIDIA's package sets the arguments; a repetition would change the node at each run.
    assert re.findall("grubby --update.*", called) == [
        "grubby --update-kernel=ALL --args=nouveau.modeset=0 rd.driver.blacklist=nouveau"
    ]
    nodes.provision(nvidia_driver_reboot=True)
    listed = cluster.shell("gpu2", "nvidia-smi --query-gpu=driver_version --format=csv,noheader")
    assert listed.split() == [V]
    assert cluster.node("gpu2").run("test -e /sys/module/nouveau").rc != 0
    assert "shutdown" not in cluster.shell("gpu1", "cat /var/log/stand-in")
    # The same run renews the record, so that train.yml takes the node.
    record = json.loads((cluster.state / "nodes" / "gpu2.json").read_text())
    assert record["driver"] == {"installed": V, "loaded": V, "nouveau": False}


def test_a_driver_in_use_is_not_replaced(cluster, nodes):
    cluster.shell("gpu2", "sleep 1000 <>/dev/nvidia0 >/dev/null 2>&1 & echo $! >/run/gpu-user")
    message = nodes.refused(*DRIVER, nvidia_driver_install=True, nvidia_driver_version="470.57.02")
    cluster.shell("gpu2", "kill $(cat /run/gpu-user)")
    assert re.search(r"gpu2: the driver cannot be replaced .*: end sleep \(pid \d+\)", message)
    assert drivers(nodes, "gpu2") == dict.fromkeys(SET, V)


def test_an_idle_driver_is_replaced_without_a_restart(cluster, nodes):
    """The locks and the loaded module change together with the driver."""
    options = dict(nvidia_driver_install=True, nvidia_driver_version="470.57.02")
    nodes.provision(*DRIVER, **options)
    assert drivers(nodes, "gpu2") == dict.fromkeys(SET, "470.57.02")
    assert "470.57.02-1.el7" in cluster.shell("gpu2", "cat " + LOCKS)
    assert V not in cluster.shell("gpu2", "cat " + LOCKS)
    listed = cluster.shell("gpu2", "nvidia-smi --query-gpu=driver_version --format=csv,noheader")
    assert listed == "470.57.02"


@pytest.mark.soak  # as the test before, which installs an older one
def test_a_driver_is_replaced_by_a_newer_one(cluster, nodes):
    nodes.provision(*DRIVER, nvidia_driver_install=True, nvidia_driver_version=V)
    assert drivers(nodes, "gpu2") == dict.fromkeys(SET, V)


@pytest.mark.soak  # the tests of the installation check the locks, too
def test_a_kept_driver_without_a_lock_is_held_again(cluster, nodes):
    """mxcluster treats packages latest-dkms as its own, also if the user installed them."""
    held = cluster.shell("gpu2", "cat " + LOCKS)
    cluster.shell("gpu2", "echo '# a comment of the package' >" + LOCKS)
    nodes.provision(*DRIVER)
    assert sorted(cluster.shell("gpu2", "cat " + LOCKS).split()) == sorted(held.split())


def test_secure_boot_is_refused_before_anything_is_installed(cluster, nodes):
    without_driver(cluster)
    cluster.shell("gpu2", "touch /etc/stand-in/secure-boot; systemctl restart stand-in-hardware")
    message = nodes.refused(*DRIVER)
    cluster.shell("gpu2", "rm /etc/stand-in/secure-boot; systemctl restart stand-in-hardware")
    assert "gpu2: secure boot is on" in message and drivers(nodes, "gpu2") == {}


def without_driver(cluster):
    """Remove the driver, its module and its locks from gpu2.

    The list of the locks stays: without the file, the plugin versionlock ends every yum.
    """
    cluster.shell(
        "gpu2",
        "systemctl stop nvidia-persistenced; modprobe -r nvidia; "
        "rpm -qa 'nvidia-*' 'kmod-nvidia*' | xargs rpm -e; : >%s" % LOCKS,
    )


def test_a_kernel_without_headers_is_named(cluster, nodes):
    before = cluster.shell("gpu2", "cat /etc/stand-in/kernels")
    cluster.shell("gpu2", "echo 3.10.0-1001.el7.x86_64 >/etc/stand-in/kernels")
    message = nodes.refused(*DRIVER)
    cluster.shell("gpu2", "echo '%s' >/etc/stand-in/kernels" % before)
    assert "no repository of the node has kernel-devel" in message and "3.10.0-1001.el7" in message
    assert drivers(nodes, "gpu2") == {}


def test_a_build_that_fails_is_seen_though_yum_succeeds(cluster, nodes):
    cluster.shell("gpu2", "touch /etc/stand-in/dkms-fails")
    message = nodes.refused(*DRIVER)
    cluster.shell("gpu2", "rm /etc/stand-in/dkms-fails")
    assert drivers(nodes, "gpu2") == dict.fromkeys(SET, V)  # yum has succeeded
    assert "dkms could not build driver %s for the kernel" % V in message and RUNNING in message
    assert "/var/lib/dkms/nvidia/%s/build/make.log" % V in message


def test_the_next_run_builds_what_is_missing(cluster, nodes):
    nodes.provision(*DRIVER)
    for kernel in (RUNNING, NEWEST):
        assert cluster.shell("gpu2", "modinfo -k %s -F version nvidia" % kernel) == V
    assert cluster.shell("gpu2", "nvidia-smi -L").count("GPU 0") == 1


def test_a_driver_needs_no_repository_of_the_system(cluster, nodes, server):
    """yum 3 fails if one enabled repository is down. The node has all packages that they have."""
    without_driver(cluster)
    cluster.shell("gpu2", "rpm -e kernel-devel-%s; yum -q clean all" % RUNNING)
    server.disturb_system()
    nodes.provision(*DRIVER)
    assert drivers(nodes, "gpu2") == dict.fromkeys(SET, V)
    for kernel in (RUNNING, NEWEST):
        assert cluster.shell("gpu2", "modinfo -k %s -F version nvidia" % kernel) == V


@pytest.mark.soak
def test_a_lock_of_yum_is_waited_for(cluster, nodes):
    """PackageKit and yum-cron hold the lock for minutes. Ansible's module waits for 30 s.

    The first task of the module begins in the first 110 s of the lock, and waits for over 30 s.
    """
    cluster.shell("gpu2", "rpm -e yum-plugin-versionlock; rm -f %s*" % LOCKS)
    cluster.shell("gpu2", "sleep 150 >/dev/null 2>&1 & echo $! >/run/yum.pid")
    began = time.monotonic()
    nodes.provision(*DRIVER)
    assert time.monotonic() - began > 150
    held = cluster.shell("gpu2", "grep -v '^#' " + LOCKS).splitlines()
    assert len(held) == len(SET)


@pytest.mark.soak
def test_a_full_disk_is_named_with_its_space(cluster, nodes):
    """yum checks the space before its transaction. The next run installs the driver."""
    without_driver(cluster)
    cluster.shell("gpu2", "mount -t tmpfs -o size=8k tmpfs /usr/share/stand-in")
    message = nodes.refused(*DRIVER)
    cluster.shell("gpu2", "umount /usr/share/stand-in")
    assert "gpu2: the disk is full" in message and "/usr has" in message, message
    nodes.provision(*DRIVER)
    assert drivers(nodes, "gpu2") == dict.fromkeys(SET, V)
