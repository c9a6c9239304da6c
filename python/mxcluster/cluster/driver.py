"""Decide about NVIDIA's driver on CentOS 7 and RHEL 7: what to install, and what is wrong after it.

The code runs on the controller and asks no node. The names of packages and the rules are those of
NVIDIA's packaging sources (yum-packaging-nvidia-driver and yum-packaging-dkms-nvidia, branches
N-rhel7).
"""

import re
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from mxcluster.cluster.version_table import number
from mxcluster.cluster.versions import check_branch
from mxcluster.errors import BadInput, some

Json = Dict[str, Any]

FLAVOUR = (
    "latest-dkms"  # the only flavour that follows each kernel; "branch-470" holds kernels back
)
DRIVER, KMOD = "nvidia-driver-" + FLAVOUR, "kmod-nvidia-latest-dkms"
# The packages of one version. yum resolves the last three from whatever version is listed.
NEEDED = [
    DRIVER,
    DRIVER + "-libs",
    DRIVER + "-cuda",
    DRIVER + "-cuda-libs",
    DRIVER + "-NVML",
    "nvidia-persistenced-" + FLAVOUR,
    "nvidia-modprobe-" + FLAVOUR,
    KMOD,
]
SET = NEEDED + [
    DRIVER + "-NvFBCOpenGL",
    DRIVER + "-devel",
    "nvidia-xconfig-" + FLAVOUR,
]
EPOCH = 3
# Packages of other driver sets: NVIDIA's other flavours and older names, and ELRepo's.
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
ARGUMENTS = ["rd.driver.blacklist=nouveau", "nouveau.modeset=0"]  # of the kernel, without nouveau


def plan(settings: Json, decided: Json, machine: Json, rpms: Sequence[str]) -> Json:
    """Return {"action": "install", "change" or "keep", "why", "branch", "version", "ours"}.

    "ours" is the version of the driver that mxcluster has installed on the node, or None. BadInput,
    before anything is changed, if the wanted driver cannot be installed there.

    Args:
        settings: the user's "install" ("auto", "true" or "false"), "branch" and "version" ("" for
            the default).
        decided: "driver" of `versions.decide`, with its "cuda" (version).
        machine: the answer of the module mxcluster_machine.
        rpms: lines "<name> <version>" of the node's packages with nvidia in their names.
    """
    install = str(settings["install"]).lower()
    version = str(settings["version"] or "")
    branch = int(settings["branch"] or (number(version)[0] if version else decided["branch"]))
    if version and number(version)[0] != branch:
        raise BadInput(
            "nvidia_driver_version %s is not of nvidia_driver_branch %d: remove one of the two"
            % (version, branch)
        )
    check_branch(branch, decided["cuda"], machine["gpus"])
    known: Dict[str, Set[str]] = {}
    for line in rpms:
        name, _, there = line.strip().partition(" ")
        known.setdefault(name, set()).add(there)
    others = sorted(name for name in known if re.fullmatch(FOREIGN, name))
    ours = _version_of_set(known) if DRIVER in known or not others else None
    found: Json = {"action": "keep", "why": "", "branch": branch, "version": version, "ours": ours}
    if install == "false":
        return dict(found, why="nvidia_driver_install is false")
    if ours is None:
        present = machine["driver"] or machine["driver_installed"]
        if install == "auto" and (present or others):
            return dict(found, why="another driver is there")
        if present and not others and number(present) >= number(decided["least"]):
            return dict(found, why="another driver is there, and it is new enough")
        if others or present:
            if present and number(present) >= number(decided["least"]):
                return dict(found, why="another driver is there, and it is new enough")
            raise BadInput(
                "it has a driver%s that mxcluster did not install (%s), and CUDA %s needs %s or "
                "newer: remove that driver (%s), restart the node, and run provision.yml again"
                % (
                    " " + present if present else "",
                    some(others) if others else "no package of yum",
                    decided["cuda"],
                    decided["least"],
                    "yum remove " + " ".join(others) if others else "nvidia-uninstall",
                )
            )
        found.update(action="install", why="it has no driver")
    else:
        lacking = [name for name in NEEDED if known.get(name) != {ours}]
        if lacking:
            # An earlier installation was cut off, and its versions may be mixed.
            found.update(
                action="install",
                why="packages of its driver are missing or mixed: " + some(lacking),
            )
        elif install == "true":
            old = number(ours) < number(decided["least"])
            other = ours != version if version else old or int(number(ours)[0]) != branch
            if other:
                found.update(action="change", why="its driver is %s" % ours)
    if found["action"] != "keep":
        _check_machine(machine, found["action"])
    return found


def _version_of_set(known: Dict[str, Set[str]]) -> Optional[str]:
    """Return the newest version of the driver among its packages, None if there are none.

    yum installs the module before the package DRIVER, which requires it. So any package of the set
    may be what a transaction left that was cut off.

    Args: `known` {package: its installed versions}. A cut transaction may leave two of them.
    """
    found = known.get(DRIVER) or {one for name in SET for one in known.get(name, ())}
    return max(found, key=number) if found else None


def _check_machine(machine: Json, action: str) -> None:
    """Raise BadInput if a driver that dkms builds cannot be loaded, or is in use."""
    if machine["secure_boot"]:
        raise BadInput(
            "secure boot is on, and its kernel loads no module that dkms builds, because nobody "
            "has signed it: disable secure boot in the firmware of the node; or sign the module "
            "with a key of your own (mokutil --import, at the console), install the driver "
            "yourself, and set nvidia_driver_install: false"
        )
    if action == "change" and machine["gpu_users"]:
        raise BadInput(
            "its driver is to be changed, but its GPUs are in use by %s: end these programs, and "
            "run provision.yml again" % some(machine["gpu_users"])
        )


def listed(text: str) -> Dict[str, List[str]]:
    """Return {package: its versions, sorted} of the output of `yum list --showduplicates`.

    yum 3 breaks a line whose name is long. A version has its epoch and release:
    "3:470.82.01-1.el7".
    """
    found: Dict[str, List[str]] = {}
    for name, version in re.findall(
        r"^(\S+)\.(?:x86_64|noarch)\s+((?:\d+:)?\d\S*-\S+)\s+\S", text, re.M
    ):
        found.setdefault(name, []).append(version)
    return {name: sorted(set(versions), key=_order) for name, versions in found.items()}


def _order(version: str) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Return the key that sorts versions such as "3:470.82.01-1.el7": version, then release."""
    upstream, _, release = version.rpartition(":")[2].partition("-")
    return number(upstream), number(release)


def choose(text: str, branch: int, wanted: str = "", url: str = "") -> Json:
    """Return {"version", "packages", "locks"}: the driver of `branch` that a repository lists.

    It is the newest version all of whose needed packages are listed, or the version `wanted`.
    "packages" are words for yum. "locks" are the lines for yum-plugin-versionlock: one for each
    package of the set, also for those that the node does not have. BadInput if there is none.

    Args: `text` the output of `yum list --showduplicates` for SET; `url` of the repository.
    """
    known = listed(text)
    of_branch = [
        version
        for version in known.get(DRIVER, [])
        if _upstream(version) == wanted or not wanted and number(_upstream(version))[0] == branch
    ]
    if not of_branch:
        there = sorted({_upstream(version) for version in known.get(DRIVER, [])}, key=number)
        raise BadInput(
            "the repository %s lists no %s %s; it lists %s: set nvidia_driver_version to one of "
            "these, or nvidia_mirror to a complete mirror"
            % (url, DRIVER, wanted or "of branch %d" % branch, some(there) if there else "none")
        )
    reasons = []
    for version in reversed(of_branch):
        lacking = [name for name in NEEDED if version not in known.get(name, [])]
        if lacking:
            reasons.append("%s lacks %s" % (_upstream(version), some(lacking)))
            continue
        names = [name for name in SET if version in known.get(name, [])]
        bare, release = version.rpartition(":")[2].split("-", 1)
        return {
            "version": bare,
            "packages": ["%s-%s-%s" % (name, bare, release) for name in names],
            "locks": ["%d:%s-%s-%s.*" % (EPOCH, name, bare, release) for name in SET],
        }
    raise BadInput(
        "the repository %s has no complete driver of branch %d: %s. Set nvidia_driver_version to "
        "another version, or nvidia_mirror to a complete mirror" % (url, branch, "; ".join(reasons))
    )


def _upstream(version: str) -> str:
    return version.rpartition(":")[2].partition("-")[0]


def vault(kernel: str) -> str:
    """Return the release of CentOS 7 whose archive has the headers of `kernel`: "7.6.1810".

    It is "" for 7.9, whose archive the role el7_repos adds, and for a kernel that is not CentOS's.
    """
    found = re.match(r"3\.10\.0-(\d+)(?:\.[\d.]+)?\.el7\.", kernel)
    release = MINORS.get(int(found.group(1)), "") if found else ""
    return "" if release == NEWEST_MINOR else release


def kernels(machine: Json) -> List[str]:
    """Return the kernels that need the driver: the running one, and the newest of the node.

    A restart boots the newest.
    """
    newest = machine["kernels"][-1:] if machine["kernels"] else []
    return list(dict.fromkeys([machine["kernel"]] + newest))


def unbuilt(version: str, wanted: Sequence[str], machine: Json, status: str) -> List[str]:
    """Return those of the kernels `wanted` that have no module of the driver `version`.

    yum succeeds even if dkms cannot build, so modinfo must find the module, and dkms must know it.

    Args: `status` the output of `dkms status -m nvidia`.
    """
    return [
        kernel
        for kernel in wanted
        if machine["modules"].get(kernel) != version or not _has_built(version, kernel, status)
    ]


def _has_built(version: str, kernel: str, status: str) -> bool:
    """Return True if `dkms status` lists the module as installed, in the words of dkms 2 or 3."""
    lines = re.findall(
        r"^nvidia[/,] ?%s, %s, \S+: (\S+)" % (re.escape(version), re.escape(kernel)), status, re.M
    )
    return any(word.startswith("installed") for word in lines)


def lacking_arguments(info: str) -> List[str]:
    """Return those of ARGUMENTS that a kernel of the boot loader lacks.

    NVIDIA's package sets them, too, in another order, for the kernels of that time.

    Args: `info` the output of `grubby --info=ALL`.
    """
    entries = [line.split() for line in re.findall(r'^args="(.*)"', info, re.M)] or [[]]
    return [one for one in ARGUMENTS if any(one not in entry for entry in entries)]


def restarts(records: Dict[str, Json]) -> Dict[str, str]:
    """Return {host: why it needs a restart} of those node records whose GPUs wait for one."""
    found = {
        host: restart_reason(record.get("driver"))
        for host, record in records.items()
        if record.get("bus")
    }
    return {host: why for host, why in sorted(found.items()) if why}


def restart_reason(driver: Optional[Json]) -> str:
    """Return why a node with GPUs needs a restart for its driver; "" if it needs none.

    Args: `driver` {"installed": version of the module for the running kernel, or None, "loaded":
    version or None, "nouveau": True if nouveau is loaded}; None if unknown.
    """
    if not driver or not driver["installed"]:
        return ""
    if driver["nouveau"]:
        return "driver %s is installed, but nouveau is loaded" % driver["installed"]
    if driver["loaded"] != driver["installed"]:
        return "driver %s is installed, but %s is loaded" % (
            driver["installed"],
            driver["loaded"] or "none",
        )
    return ""
