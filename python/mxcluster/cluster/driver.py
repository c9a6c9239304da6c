"""Choose NVIDIA's driver for CentOS 7 and RHEL 7, and find faults of an installed driver.

The code runs on the controller and connects to no node. The names of packages and the rules come
from NVIDIA's packaging sources (yum-packaging-nvidia-driver and yum-packaging-dkms-nvidia, branches
N-rhel7).

yum alone would install the newest branch, which lacks the GPUs before Maxwell, and would fail on a
mirror that holds only a part of the newest version. So `choose` reads the list of the repository.
"""

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from mxcluster.cluster.version_table import number, table
from mxcluster.cluster.versions import check_branch
from mxcluster.errors import BadInput, some
from mxcluster.lists import unique
from mxcluster.model import names
from mxcluster.model.module_answers import MachineAnswer
from mxcluster.model.node_record import Driver, NodeRecord
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, matching, one_of, optional, or_empty, whole, words
from mxcluster.model.software import NeededDriver

# The only flavour that supports each new kernel. The flavour "branch-470" holds kernels back.
FLAVOUR = "latest-dkms"
DRIVER, KMOD = "nvidia-driver-" + FLAVOUR, "kmod-nvidia-latest-dkms"
# The packages that a driver must have. All have the same version.
NEEDED = [DRIVER + part for part in ("", "-libs", "-cuda", "-cuda-libs", "-NVML")] + [
    "nvidia-persistenced-" + FLAVOUR,
    "nvidia-modprobe-" + FLAVOUR,
    KMOD,
]
SET = NEEDED + [DRIVER + "-NvFBCOpenGL", DRIVER + "-devel", "nvidia-xconfig-" + FLAVOUR]
EPOCH = 3
# Packages of other drivers: NVIDIA's other flavours and older names, and ELRepo's packages.
FOREIGN = (
    r"(nvidia-driver(-branch-\d+|-latest)?|kmod-nvidia(-branch-\d+.*|-latest|-\d+xx)?"
    r"|nvidia-x11-drv(-.*)?|xorg-x11-drv-nvidia|nvidia-kmod|nvidia-detect)"
)
# The release of CentOS 7 by the number of its first kernel: 3.10.0-<number>.el7.
MINORS = {
    123: "7.0.1406",
    229: "7.1.1503",
    327: "7.2.1511",
    514: "7.3.1611",
    693: "7.4.1708",
    862: "7.5.1804",
    957: "7.6.1810",
    1062: "7.7.1908",
    1127: "7.8.2003",
    1160: "7.9.2009",
}
NEWEST_MINOR = "7.9.2009"
# Kernel arguments that disable nouveau.
ARGUMENTS = ["rd.driver.blacklist=nouveau", "nouveau.modeset=0"]


class Settings(Record, strict=True):
    """The user's settings of the driver."""

    install: str = field(one_of("auto", "true", "false"))
    branch: str = field(matching("[0-9]{0,4}", "a branch, such as 470, or empty"))
    version: str = field(or_empty(names.version))
    """Empty for the default."""


class Plan(Record):
    """The action of mxcluster on the driver of a node, and the versions that it installs."""

    action: str = field(one_of("install", "change", "keep"))
    why: str = field(words)
    """The reason of the action."""
    branch: int = field(whole(1, 10000))
    version: str = field(or_empty(names.version))
    """The version that the user wants."""
    own: Optional[str] = field(optional(names.version))
    """The version of the node's packages latest-dkms, which mxcluster treats as its own."""
    prefer: str = field(or_empty(names.version), default="")
    """The version that the repair of an incomplete driver installs if possible."""
    locks: Sequence[str] = field(each(words), default=[])
    """Lines for yum-plugin-versionlock that hold a kept driver."""


class Packages(Record):
    """The packages of a driver in a repository."""

    version: str = field(names.version)
    packages: Sequence[str] = field(each(words))
    """Arguments for yum."""
    locks: Sequence[str] = field(each(words))
    """The result of `locks`."""


class _Job(Record):
    """A job in the answer of the command `jobs`."""

    job: str = field(words)
    state: str = field(words)


class Jobs(Record):
    """The jobs of a node. A node without MXNet has no answer about jobs."""

    jobs: Sequence[_Job] = field(each(record(_Job)), default=[])

    def running(self) -> List[str]:
        """Return the ids of the jobs that have not ended."""
        return [one.job for one in self.jobs if one.state in ("running", "prepared")]


class _Installed(NamedTuple):
    """The driver packages of a node."""

    versions: Mapping[str, Set[str]]  # of each package
    release: str  # of the package DRIVER, "" without this package
    others: List[str]  # packages of other drivers
    own: Optional[str]  # the version of the driver that mxcluster treats as its own

    @property
    def lacking(self) -> List[str]:
        """The packages of NEEDED that are missing, or have several versions."""
        return [name for name in NEEDED if self.versions.get(name) != {self.own}]


def plan(
    settings: Settings, needed: NeededDriver, machine: MachineAnswer, rpms: Sequence[str]
) -> Plan:
    """Return the plan for the driver of a node.

    Raises BadInput if mxcluster cannot install the wanted driver on the node. provision.yml calls
    the function before it changes the node.

    Args: `needed` the driver that CUDA and the GPUs need; `machine` the facts of the node; `rpms` a
    line "<name> <version> <release>" for each package of the node with nvidia in its name.
    """
    branch = _wanted_branch(settings, needed, machine)
    known = _installed(rpms)
    own = known.own
    found = Plan(action="keep", why="", branch=branch, version=settings.version, own=own)
    if settings.install == "false":
        return found.replaced(why="nvidia_driver_install is false")
    if own is None:
        why = _why_other_driver_stays(settings, needed, machine, known.others)
        if why:
            return found.replaced(why=why)
        found = found.replaced(action="install", why="the node has no driver")
    elif known.lacking:
        # The earlier installation was interrupted, and may have left several versions.
        found = found.replaced(
            action="install",
            why="packages of the driver are missing or have mixed versions: " + some(known.lacking),
        )
        if not settings.version and not settings.branch and _suits(own, needed, machine):
            found = found.replaced(branch=number(own)[0], prefer=own)
    elif settings.install == "true" and _is_unwanted(own, settings, needed, machine):
        found = found.replaced(action="change", why="the node has driver %s" % own)
    else:
        return found.replaced(locks=locks(own, known.release))
    _check_machine(machine)
    return found


def _wanted_branch(settings: Settings, needed: NeededDriver, machine: MachineAnswer) -> int:
    """Return the branch of the driver to install. Raises BadInput for an impossible branch."""
    version = settings.version
    branch = int(settings.branch or (number(version)[0] if version else needed.branch))
    if version and number(version)[0] != branch:
        raise BadInput(
            "nvidia_driver_version %s does not belong to nvidia_driver_branch %d: remove one of "
            "these settings" % (version, branch)
        )
    newest = max(table().driver_branches)
    if branch > newest:
        raise BadInput(
            "NVIDIA has no driver branch %d for EL 7, whose last branch is %d: set "
            "nvidia_driver_branch to %s"
            % (branch, newest, " or ".join(map(str, table().driver_branches)))
        )
    check_branch(branch, needed.cuda, machine.gpus)
    return branch


def _installed(rpms: Sequence[str]) -> _Installed:
    """Return the driver packages of a node. Args: `rpms` as in `plan`."""
    known: Dict[str, Set[str]] = {}
    release = ""
    for line in rpms:
        name, version, last = line.split()
        known.setdefault(name, set()).add(version)
        release = last if name == DRIVER else release
    others = sorted(name for name in known if re.fullmatch(FOREIGN, name))
    # yum installs the kernel module before the package DRIVER, which requires the module. So an
    # interrupted transaction may leave any package of SET, and two versions of a package.
    versions = known.get(DRIVER) or {one for name in SET for one in known.get(name, ())}
    is_own = DRIVER in known or not others
    own = max(versions, key=number) if versions and is_own else None
    return _Installed(known, release, others, own)


def _why_other_driver_stays(
    settings: Settings, needed: NeededDriver, machine: MachineAnswer, others: List[str]
) -> str:
    """Return the reason to keep a driver that mxcluster has not installed, "" without a driver.

    Raises BadInput if the driver is too old. Args: `others` packages of other drivers.
    """
    present = machine.driver_installed or machine.driver
    if settings.install == "auto" and (present or others):
        return "the node has another driver"
    if present and number(present) >= number(needed.least):
        return "the node has another driver, which is new enough"
    if others or present:
        version = " " + present if present else ""
        packages = some(others) or "no package of yum"
        cure = "yum remove " + " ".join(others) if others else "nvidia-uninstall"
        raise BadInput(
            "the node has a driver%s that mxcluster did not install (%s), but CUDA %s needs %s "
            "or newer: remove that driver (%s), restart the node, and run provision.yml again"
            % (version, packages, needed.cuda, needed.least, cure)
        )
    return ""


def _suits(version: str, needed: NeededDriver, machine: MachineAnswer) -> bool:
    """Return True if the driver `version` supports the chosen CUDA and all GPUs of a node."""
    try:
        check_branch(number(version)[0], needed.cuda, machine.gpus)
    except BadInput:
        return False
    return number(version) >= number(needed.least)


def _is_unwanted(
    own: str, settings: Settings, needed: NeededDriver, machine: MachineAnswer
) -> bool:
    """Return True if nvidia_driver_install: true replaces the complete driver `own`.

    The default branch is no reason to replace a driver that suits the node.
    """
    if settings.version:
        return own != settings.version
    if settings.branch and number(own)[0] != int(settings.branch):
        return True
    return not _suits(own, needed, machine)


def _check_machine(machine: MachineAnswer) -> None:
    """Raise BadInput if the kernel refuses modules of dkms, or if programs use the old driver."""
    if machine.secure_boot:
        raise BadInput(
            "secure boot is on, so the kernel loads signed modules only, but dkms builds unsigned "
            "modules: disable secure boot in the firmware of the node; or sign the module with "
            "your own key (mokutil --import, at the console), install the driver yourself, and "
            "set nvidia_driver_install: false"
        )
    if machine.driver and machine.gpu_users:
        raise BadInput(
            "the driver cannot be replaced while programs use the GPUs: end %s, then run "
            "provision.yml again" % some(list(machine.gpu_users))
        )


def listed(text: str) -> Dict[str, List[str]]:
    """Return {package: sorted versions} from `text`, the output of `yum list --showduplicates`.

    A version has its release, such as "470.82.01-1.el7". yum 3 breaks the line of a long name.
    """
    found: Dict[str, List[str]] = {}
    for name, version in re.findall(
        r"^(\S+)\.(?:x86_64|noarch)\s+(?:\d+:)?(\d\S*-\S+)\s+\S", text, re.M
    ):
        found.setdefault(name, []).append(version)
    return {name: sorted(set(versions), key=_order) for name, versions in found.items()}


def _order(version: str) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Return the sort key of a version such as "470.82.01-1.el7": (version, release)."""
    bare, _, release = version.partition("-")
    return number(bare), number(release)


def choose(text: str, branch: int, wanted: str = "", url: str = "", prefer: str = "") -> Packages:
    """Return the driver that a repository has for a branch.

    The version is `wanted`, or the newest version with all packages of NEEDED. A complete version
    `prefer` takes precedence over newer versions. Raises BadInput if the repository has no such
    driver.

    Args: `text` the output of `yum list --showduplicates` for SET; `branch` such as 470; `wanted` a
    version such as "470.82.01", or ""; `url` of the repository, for messages; `prefer` as in
    `plan`.
    """
    known = listed(text)
    bare = {version: version.partition("-")[0] for version in known.get(DRIVER, [])}
    of_branch = [
        version
        for version, one in bare.items()
        if one == wanted or not wanted and number(one)[0] == branch
    ]
    if not of_branch:
        versions = some(sorted(set(bare.values()), key=number)) or "no version"
        raise BadInput(
            "the repository %s has no %s %s, only %s: set nvidia_driver_version to one of these "
            "versions, or nvidia_mirror to a complete mirror"
            % (url, DRIVER, wanted or "of branch %d" % branch, versions)
        )
    reasons = []
    of_branch.sort(key=lambda one: (bare[one] == prefer, _order(one)), reverse=True)
    for version in of_branch:
        lacking = [name for name in NEEDED if version not in known.get(name, [])]
        if lacking:
            reasons.append("%s lacks %s" % (bare[version], some(lacking)))
            continue
        available = [name for name in SET if version in known.get(name, [])]
        return Packages(
            version=bare[version],
            packages=["%s-%s" % (name, version) for name in available],
            locks=locks(*version.split("-", 1)),
        )
    raise BadInput(
        "the repository %s has no complete driver of branch %d: %s. Set nvidia_driver_version to "
        "another version, or nvidia_mirror to a complete mirror" % (url, branch, "; ".join(reasons))
    )


def locks(version: str, release: str) -> List[str]:
    """Return the lines for yum-plugin-versionlock that hold a driver, one for each package of SET.

    The lines also hold missing packages, because a later version of a missing package would update
    the other packages.

    Args: `version` such as "470.82.01"; `release` of the packages, such as "1.el7".
    """
    return ["%d:%s-%s-%s.*" % (EPOCH, name, version, release) for name in SET]


def vault(kernel: str) -> str:
    """Return the release of CentOS 7 with the headers of `kernel`, such as "7.6.1810".

    Returns "" for release 7.9, because the role el7_repos adds the archive of 7.9. Returns "" for a
    kernel from another source than CentOS.
    """
    found = re.match(r"3\.10\.0-(\d+)(?:\.[\d.]+)?\.el7\.", kernel)
    release = MINORS.get(int(found.group(1)), "") if found else ""
    return "" if release == NEWEST_MINOR else release


def kernels(machine: MachineAnswer) -> List[str]:
    """Return the kernels that need the driver: the running kernel, and the node's newest kernel.

    A restart boots the newest kernel.
    """
    return unique([machine.kernel, *machine.kernels[-1:]])


def unbuilt(version: str, wanted: Sequence[str], machine: MachineAnswer, status: str) -> List[str]:
    """Return the kernels without a module of the driver `version`.

    yum succeeds even if the build of dkms fails. So modinfo must find the module, and dkms must
    list the module as installed.

    Args: `wanted` the kernels to check; `status` the output of `dkms status -m nvidia`.
    """
    return [
        kernel
        for kernel in wanted
        if machine.modules.get(kernel) != version or not _has_built(version, kernel, status)
    ]


def _has_built(version: str, kernel: str, status: str) -> bool:
    """Return True if `status`, an output of dkms 2 or 3, lists the module as installed."""
    lines = re.findall(
        r"^nvidia[/,] ?%s, %s, \S+: (\S+)" % (re.escape(version), re.escape(kernel)), status, re.M
    )
    return any(word.startswith("installed") for word in lines)


def lacking_arguments(info: str) -> List[str]:
    """Return the arguments of ARGUMENTS that a kernel of the boot loader lacks.

    NVIDIA's package sets the same arguments in another order, but only for the present kernels.

    Args: `info` the output of `grubby --info=ALL`.
    """
    entries = [line.split() for line in re.findall(r'^args="(.*)"', info, re.M)] or [[]]
    return [one for one in ARGUMENTS if any(one not in entry for entry in entries)]


def busy(users: Sequence[str], answer: Jobs) -> str:
    """Return what to do before a restart of a node, such as "end python (pid 7)", or "" if idle.

    Args: `users` the programs with an open GPU; `answer` the jobs of the node.
    """
    jobs = answer.running()
    return ", ".join(
        (["end " + some(list(users))] if users else [])
        + (["wait for the end of job %s or run stop.yml" % some(jobs)] if jobs else [])
    )


def restarts(records: Mapping[str, NodeRecord]) -> Dict[str, str]:
    """Return {host: the reason of a restart} for the nodes whose driver needs a restart.

    Args: `records` {host: node record}.
    """
    found = {host: restart_reason(record.driver) for host, record in records.items() if record.bus}
    return {host: why for host, why in sorted(found.items()) if why}


def restart_reason(driver: Optional[Driver]) -> str:
    """Return the reason why a node needs a restart for its driver, or "" without a reason.

    Args: `driver` the state of the driver, or None if unknown.
    """
    return driver.restart_reason() if driver else ""
