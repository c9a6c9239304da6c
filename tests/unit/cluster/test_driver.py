"""Which driver is installed on CentOS 7, what is refused, and what is checked after it."""

import pytest

from mxcluster.cluster import driver
from mxcluster.errors import BadInput
from mxcluster.model.module_answers import MachineAnswer
from mxcluster.model.node_record import Driver, NodeRecord
from mxcluster.model.software import NeededDriver

VOLTA, KEPLER = "1db4", "102d"
KERNEL, OLD = "3.10.0-1160.119.1.el7.x86_64", "3.10.0-957.el7.x86_64"
AUTO = {"install": "auto", "branch": "", "version": ""}
TRUE = dict(AUTO, install="true")
OURS = [name + " 470.82.01 1.el7" for name in driver.SET]


FACTS = {"gpus": [VOLTA], "kernel": KERNEL, "kernels": [KERNEL], "modules": {}, "python": "3.6"}
FACTS.update(driver=None, driver_installed=None, nouveau=False, secure_boot=False, machine_id="")
MACHINE = MachineAnswer(gpu_users=[], missing_libraries=[], missing_programs=[], **FACTS)
BUSY = {"driver": "470.82.01", "gpu_users": ["python (pid 7)"]}


def machine(**facts):
    return MACHINE.replaced(**facts)


def plan(settings=AUTO, rpms=(), least="396.37", cuda="9.2", **facts):
    needed = NeededDriver(branch=470, least=least, cuda=cuda, installable=True)
    return driver.plan(driver.Settings.decode(settings), needed, machine(**facts), rpms)


LISTED = """Last metadata expiration check: 0:00:01 ago.
Installed Packages
nvidia-driver-latest-dkms.x86_64      3:470.57.02-1.el7      @mxcluster-nvidia-driver
Available Packages
"""


def listing(*versions, without=(), names=driver.SET):
    """The output of yum 3, which breaks a long line after the name and after the version."""
    lines = []
    for name in names:
        for version in versions:
            if (name, version) in without:
                continue
            gap = "\n" + " " * 20 if len(name) > 30 else "  "
            end = "\n" + " " * 40 if len(version) > 9 else "  "
            words = (name, gap, version, end)
            lines.append("%s.x86_64%s3:%s-1.el7%smxcluster-nvidia-driver" % words)
    return LISTED + "\n".join(lines)


@pytest.mark.parametrize(
    "settings, rpms, facts, action",
    [
        (AUTO, [], {}, "install"),
        (dict(AUTO, install="false"), [], {}, "keep"),
        (AUTO, [], {"driver": "396.37"}, "keep"),
        (AUTO, OURS[1:], {"driver": "470.82.01"}, "install"),
        (TRUE, OURS, {}, "keep"),
        (dict(TRUE, version="470.57.02"), OURS, {}, "change"),
        (TRUE, [], {"driver": "450.80.02"}, "keep"),  # another's, and new enough
    ],
)
def test_what_is_done_with_a_node(settings, rpms, facts, action):
    assert plan(settings, rpms, **facts).action == action


@pytest.mark.parametrize("count", [1, 2, len(driver.SET) - 1])
def test_a_transaction_that_was_cut_off_anywhere_is_repeated(count):
    """yum installs the kmod, whose script builds the module, before the package of the driver."""
    left = [name + " 470.82.01 1.el7" for name in [driver.KMOD] + driver.SET[1:]][:count]
    found = plan(TRUE, left, driver_installed="470.82.01")
    assert (found.action, found.own) == ("install", "470.82.01")


def test_two_versions_of_a_package_are_a_transaction_that_was_cut_off():
    for old in (driver.DRIVER, driver.KMOD):
        for both in (OURS + [old + " 470.57.02 1.el7"], [old + " 470.57.02 1.el7"] + OURS):
            found = plan(AUTO, both)
            assert (found.action, found.own) == ("install", "470.82.01")
            assert found.why.endswith("missing or have mixed versions: " + old)


@pytest.mark.parametrize(
    "settings, rpms, facts, said",
    [
        (AUTO, [], {"secure_boot": True}, "disable secure boot"),
        (dict(TRUE, branch="550"), OURS, BUSY, "end python (pid 7), then"),
        (TRUE, [], {"driver": "390.87"}, "nvidia-uninstall"),
        (dict(AUTO, branch="550"), [], {"gpus": [KEPLER]}, "102d (GK210) needs 470 or older"),
        (dict(AUTO, branch="550", version="470.82.01"), [], {}, "remove one of "),
        (dict(AUTO, branch="580"), [], {}, "whose last branch is 550: set nvidia_driver_branch to"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_change(settings, rpms, facts, said):
    with pytest.raises(BadInput) as refusal:
        plan(settings, rpms, **facts)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    "settings, version, facts, action",
    [
        (TRUE, "550.163.01", {}, "keep"),  # no setting asks for the default branch 470
        (dict(TRUE, branch="470"), "550.163.01", {}, "change"),
        (TRUE, "550.163.01", {"gpus": [KEPLER]}, "change"),  # 550 does not support Kepler
        (TRUE, "390.87", {}, "change"),
    ],
)
def test_the_default_branch_replaces_only_an_unsuitable_driver(settings, version, facts, action):
    rpms = ["%s %s 1.el7" % (name, version) for name in driver.SET]
    assert plan(settings, rpms, **facts).action == action


@pytest.mark.parametrize(
    "settings, version, branch, prefer",
    [
        (AUTO, "550.144.03", 550, "550.144.03"),
        (AUTO, "470.57.02", 470, "470.57.02"),
        (dict(AUTO, branch="470"), "550.144.03", 470, ""),
        (AUTO, "390.87", 470, ""),  # too old for CUDA 9.2
    ],
)
def test_the_repair_of_an_incomplete_driver_keeps_its_version(settings, version, branch, prefer):
    found = plan(settings, ["%s %s 1.el7" % (name, version) for name in driver.SET[:1]])
    assert (found.action, found.branch, found.prefer) == ("install", branch, prefer)


@pytest.mark.parametrize("install, held", [("auto", True), ("true", True), ("false", False)])
def test_a_kept_driver_is_held_unless_the_user_refuses_a_driver(install, held):
    locks = plan(dict(AUTO, install=install), [line.replace("1.el7", "2.el7") for line in OURS])
    assert locks.action == "keep" and bool(locks.locks) is held
    if held:
        assert "3:kmod-nvidia-latest-dkms-470.82.01-2.el7.*" in locks.locks
        assert len(locks.locks) == len(driver.SET)
    assert plan(AUTO, ["kmod-nvidia 390.87 1.el7"]).locks == []


def test_the_newest_complete_version_of_the_branch_is_chosen():
    text = listing("470.57.02", "470.182.03", "470.82.01", "550.163.01")
    assert driver.choose(text, 470).version == "470.182.03"
    assert driver.choose(text, 550).version == "550.163.01"
    assert driver.choose(text, 470, "470.57.02").version == "470.57.02"
    assert driver.choose(text, 470, prefer="470.57.02").version == "470.57.02"
    assert driver.choose(text, 470, prefer="470.94").version == "470.182.03"
    lacking = listing("470.82.01", "470.182.03", without=[(driver.KMOD, "470.182.03")])
    assert driver.choose(lacking, 470).version == "470.82.01"


def test_all_packages_of_the_set_are_named_and_held():
    chosen = driver.choose(listing("470.82.01", without=[(driver.SET[-1], "470.82.01")]), 470)
    assert chosen.packages[0] == "nvidia-driver-latest-dkms-470.82.01-1.el7"
    assert len(chosen.packages) == len(driver.SET) - 1
    # Also the package that is not there: a later version of it would draw the others along.
    assert len(chosen.locks) == len(driver.SET)
    assert "3:kmod-nvidia-latest-dkms-470.82.01-1.el7.*" in chosen.locks


@pytest.mark.parametrize(
    "text, wanted, said",
    [
        ("", "", "only no version"),
        (listing("470.82.01"), "470.256.02", "nvidia-driver-latest-dkms 470.256.02"),
        (listing("470.82.01", without=[(driver.KMOD, "470.82.01")]), "", "lacks kmod-nvidia"),
    ],
)
def test_a_repository_without_a_complete_driver_is_refused(text, wanted, said):
    with pytest.raises(BadInput) as refusal:
        driver.choose(text, 470, wanted, "http://mirror")
    assert said in str(refusal.value) and "http://mirror" in str(refusal.value)


@pytest.mark.parametrize(
    "kernel, release",
    [
        ("3.10.0-123.el7.x86_64", "7.0.1406"),
        ("3.10.0-957.21.3.el7.x86_64", "7.6.1810"),
        (KERNEL, ""),  # the archive of 7.9 is among the ordinary repositories
        ("5.4.278-1.el7.elrepo.x86_64", ""),
    ],
)
def test_headers_come_from_the_archive_of_the_kernels_release(kernel, release):
    assert driver.vault(kernel) == release


def test_the_running_and_the_newest_kernel_need_a_module():
    assert driver.kernels(machine()) == [KERNEL]
    assert driver.kernels(machine(kernel=OLD, kernels=[OLD, "x", KERNEL])) == [OLD, KERNEL]
    assert driver.kernels(machine(kernels=[])) == [KERNEL]


@pytest.mark.parametrize(
    "status, built",
    [
        ("nvidia/470.82.01, %s, x86_64: installed\n", True),
        ("nvidia, 470.82.01, %s, x86_64: installed-weak from 3.10.0-957.el7.x86_64\n", True),
        ("nvidia/470.82.01, %s, x86_64: built\n", False),
    ],
)
def test_a_kernel_has_the_driver_if_dkms_and_modinfo_say_so(status, built):
    status = status % KERNEL if "%s" in status else status
    facts = machine(modules={KERNEL: "470.82.01"})
    assert driver.unbuilt("470.82.01", [KERNEL], facts, status) == ([] if built else [KERNEL])
    assert driver.unbuilt("470.82.01", [KERNEL], machine(), status) == [KERNEL]


BOTH = "nouveau.modeset=0 rd.driver.blacklist=nouveau"  # in the order of NVIDIA's package


@pytest.mark.parametrize(
    "entries, lacking",
    [
        (["ro quiet " + BOTH, BOTH], []),
        (["ro quiet " + BOTH, "ro quiet"], driver.ARGUMENTS),  # a kernel that was installed later
        (["ro nouveau.modeset=01 rd.driver.blacklist=nouveau"], driver.ARGUMENTS[1:]),
        ([], driver.ARGUMENTS),
    ],
)
def test_every_kernel_of_the_boot_loader_needs_the_arguments_in_any_order(entries, lacking):
    text = "".join('index=%d\nargs="%s"\nroot=/dev/sda1\n' % one for one in enumerate(entries))
    assert driver.lacking_arguments(text + "non linux entry\n") == lacking


@pytest.mark.parametrize(
    "facts, why",
    [
        (None, ""),
        (("470.82.01", "470.82.01", False), ""),
        (("470.82.01", None, True), "driver 470.82.01 is installed, but nouveau is loaded"),
        (("470.82.01", "470.57.02", False), "driver 470.82.01 is installed, but 470.57.02"),
    ],
)
def test_why_only_a_restart_helps(facts, why):
    state = facts and Driver(**dict(zip(("installed", "loaded", "nouveau"), facts)))
    found = driver.restart_reason(state)
    assert (why in found) if why else found == ""
    records = {
        host: NodeRecord(host=host, job_dir="/j", data_dir="/d", bus=bus, driver=state)
        for host, bus in (("gpu", 1), ("cpu", 0))
    }
    assert list(driver.restarts(records)) == (["gpu"] if why else [])


JOBS = [{"job": "a", "state": "running"}, {"job": "b", "state": "prepared"}]


@pytest.mark.parametrize(
    "users, answer, todo",
    [
        ([], {}, ""),
        (["python (pid 7)"], {}, "end python (pid 7)"),
        ([], {"jobs": JOBS}, "wait for the end of job a, b or run stop.yml"),
    ],
)
def test_a_busy_node_is_not_restarted(users, answer, todo):
    assert driver.busy(users, driver.Jobs.decode(answer)) == todo
