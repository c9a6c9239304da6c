"""Choose MXNet, CUDA, cuDNN, NCCL and driver of a node from the user's settings and the facts.

The code runs on the controller and connects to no node. The module `version_table` reads the
tables. The module `pairs` decides which versions work together.
"""

import re
from typing import Iterable, List, Mapping, Optional, Tuple

from mxcluster.cluster import own_wheel, pairs
from mxcluster.cluster.version_table import System, architecture, chip, cuda_row, number, table
from mxcluster.errors import BadInput
from mxcluster.model import node_record, software
from mxcluster.model.shapes import Wrong

# A system outside the table: mxcluster installs no CUDA on it.
OTHER_SYSTEM = System(cuda=[])


def check_branch(branch: int, cuda: str, devices: Iterable[str]) -> None:
    """Raise BadInput if a driver branch does not support a CUDA version and all GPUs of a node.

    Args: `branch` such as 470; `cuda` such as "9.2"; `devices` PCI device numbers (hexadecimal
    texts).
    """
    reasons, least = [], cuda_row(cuda).driver
    if branch < number(least)[0]:
        reasons.append("CUDA %s needs %s or newer" % (cuda, least))
    for device in sorted(set(devices)):
        name, capability = chip(device)
        row = table().architectures[architecture(capability)] if capability else None
        newest, oldest = (row.newest_driver, row.oldest_driver) if row else (None, None)
        if newest is not None and branch > newest:
            reasons.append("the GPU %s (%s) needs %d or older" % (device, name, newest))
        if oldest is not None and branch < oldest:
            reasons.append("the GPU %s (%s) needs %d or newer" % (device, name, oldest))
    if reasons:
        raise BadInput(
            "driver branch %d does not support the node: %s. Set nvidia_driver_branch to another "
            "branch, or remove the GPU" % (branch, "; ".join(reasons))
        )


def driver_branch(cuda: str, devices: Iterable[str]) -> int:
    """Return the table's first driver branch for a CUDA version and all GPUs in `devices`.

    Raises BadInput if no branch supports this CUDA together with all these GPUs. The arguments are
    those of `check_branch`.
    """
    refusals: List[BadInput] = []
    for branch in table().driver_branches:
        try:
            check_branch(branch, cuda, devices)
            return branch
        except BadInput as error:
            refusals.append(error)
    raise refusals[0]


def system(name: str, version: str) -> Tuple[str, System]:
    """Return (key, row) of a node's operating system in the table "systems" of versions.yml.

    The key is "" if the table lacks the system. For ("CentOS", "7.9") the key is "CentOS 7", and
    for ("Ubuntu", "20.04") the key is "Ubuntu 20.04".

    Args: `name` and `version` the facts ansible_distribution and ansible_distribution_version.
    """
    rows = table().systems
    for known in ("%s %s" % (name, version), "%s %s" % (name, version.split(".")[0])):
        if known in rows:
            return known, rows[known]
    return "", OTHER_SYSTEM


# The programs and libraries that a node needs, and their packages, by Ansible's os_family. Ansible
# uses the program ip to find a node's addresses.
INSTALL = {"Debian": "apt-get install -y", "RedHat": "yum install -y"}
PACKAGES = {
    "ip": {"Debian": "iproute2", "RedHat": "iproute"},
    "python3": {"Debian": "python3", "RedHat": "python3"},
    "libgomp.so.1": {"Debian": "libgomp1", "RedHat": "libgomp"},
    "libquadmath.so.0": {"Debian": "libquadmath0", "RedHat": "libquadmath"},
}


def check_system(node: software.Machine) -> None:
    """Raise BadInput if the node lacks a program or library that mxcluster does not install.

    The message names the command that installs all missing programs and libraries.
    """
    missing = [name for name in node.missing if name == "ip" or not node.own_system]
    if not node.own_system and not node.python:
        missing.append("python3")
    if not missing:
        return
    cure = "install the missing programs and libraries"
    if node.family in INSTALL and all(name in PACKAGES for name in missing):
        packages = sorted(PACKAGES[name][node.family] for name in missing)
        cure = "run '%s %s' as root" % (INSTALL[node.family], " ".join(packages))
    raise BadInput(
        "the node lacks %s. On the node, %s. Then run the playbook again. The playbook has fetched "
        "and changed nothing" % (", ".join(missing), cure)
    )


def read(host: str, choice: object, node: object) -> software.Decision:
    """Return the software to install on the node `host`.

    Args: `choice` the user's settings, and `node` the facts of the node, both as JSON. Raises
    BadInput as `decide` does, and if a value is invalid.
    """
    try:
        given = software.Choice.decode(choice)
    except Wrong as wrong:
        raise BadInput("%s: %s: correct this value in the inventory" % (host, wrong)) from None
    try:
        return decide(given, software.Machine.decode(node))
    except (BadInput, Wrong) as refusal:
        raise BadInput("%s: %s" % (host, refusal)) from None


def decide(choice: software.Choice, node: software.Machine) -> software.Decision:
    """Return the software to install on one node.

    Raises BadInput with the reason and the nearest cure if the choice does not work on the node.
    """
    name, row = system(node.system, node.system_version)
    _check_node(choice, node, name)
    cuda = choice.cuda_version if node.gpus else ""
    wanted = pairs.target(cuda, choice.mxnet_build == "mkl")
    if cuda:
        cuda_row(cuda)  # refuses an unknown CUDA
    if choice.wheel is None:
        return _decide(choice, node, wanted, name, row)
    with own_wheel.in_tables(choice.wheel, choice.mxnet_version, wanted):
        decision = _decide(choice, node, wanted, name, row)
    known = own_wheel.spoken(choice.wheel)
    environment = decision.environment
    return decision.replaced(
        wheel=known,
        environment=environment.replaced(name="%s from %s" % (environment.name, known)),
    )


def _decide(
    choice: software.Choice, node: software.Machine, wanted: str, name: str, row: System
) -> software.Decision:
    """Return the software of one node for the target `wanted`.

    Args: `name` and `row` the result of `system`; the others as for `decide`, with its errors.
    """
    mxnet, cuda = choice.mxnet_version, pairs.cuda_of(wanted)
    installable = row.driver and node.own_system
    installs = installable and choice.driver_install != "false"
    # The role nvidia_driver replaces an older driver, or refuses the node.
    replaces = installable and choice.driver_install == "true"
    driver = node.driver_installed or node.driver
    pairs.check(
        mxnet,
        wanted,
        pairs.Node(
            python=node.python or row.python,
            gpus=node.gpus,
            # The installed driver counts: the role loads this driver, or a restart does.
            driver=None if replaces else driver,
            libcuda=bool(driver or installs),
        ),
    )
    decision = software.Decision(
        target=wanted,
        gpus=len(node.gpus) if cuda else 0,
        system=name,
        family=node.family if node.family in INSTALL else "",
        environment=pairs.environment(mxnet, wanted),
    )
    return _with_cuda(decision, choice, node, row, installable) if cuda else decision


def _check_node(choice: software.Choice, node: software.Machine, system_name: str) -> None:
    """Raise BadInput if the node cannot have any MXNet, or lacks a required GPU.

    Args: `system_name` the key of `system`.
    """
    if node.architecture != "x86_64":
        raise BadInput(
            "the node's architecture is %s, but MXNet's wheels require x86_64: remove the node "
            "from the inventory" % node.architecture
        )
    if node.own_system and not system_name:
        raise BadInput(
            "mxcluster cannot install system packages on %s %s, only on %s: set mxcluster_user: '' "
            "to install without changes to the system"
            % (node.system, node.system_version, ", ".join(table().systems))
        )
    check_system(node)
    if choice.cuda_version and choice.gpu_required and not node.gpus:
        raise BadInput(
            "the node has no NVIDIA GPU on its PCI bus, but gpu_required is set. Check the seat of "
            "the card (lspci -d 10de:). If the node has no card, remove the node from the "
            "inventory, or set gpu_required: false to train on the CPU"
        )


def _with_cuda(
    decision: software.Decision,
    choice: software.Choice,
    node: software.Machine,
    system_row: System,
    installable: bool,
) -> software.Decision:
    """Return `decision` with CUDA, cuDNN, NCCL and the needed driver.

    Args: `system_row` the table's row of the node's system; `installable` whether mxcluster
    installs drivers on the node.
    """
    mxnet, wanted = choice.mxnet_version, decision.target
    cuda = choice.cuda_version
    row, source = cuda_row(cuda), Source(choice.nvidia_mirror, choice.nvidia_sha256)
    way = cuda_source(choice.cuda_source, system_row, decision.system or node.system, node)
    cudnn = source.library(pairs.cudnn(mxnet, wanted, choice.cudnn_version))
    nccl = source.library(pairs.nccl(mxnet, wanted))
    return decision.replaced(
        cuda=software.Cuda(
            version=cuda,
            release=row.release,
            source=way,
            pinned=row.pinned,
            rpm=[source.file(url) for url in row.rpm],
            runfile=[source.file(one.url, one.sha256) for one in row.runfile],
            packages=packages(cuda),
            network_repo=source.url(table().network_repo),
            keys=[
                software.KeyFile(fingerprint=key.fingerprint, **vars(source.file(key.url)))
                for key in choice.nvidia_keys or table().keys
            ],
        ),
        cudnn=cudnn,
        nccl=nccl,
        driver=software.NeededDriver(
            branch=driver_branch(cuda, node.gpus),
            cuda=cuda,
            least=row.driver,
            installable=installable,
        ),
        installed=None
        if way == "none"
        else node_record.Cuda(
            folder="/usr/local/cuda-" + cuda,
            version=cuda,
            release=row.release,
            driver=row.driver,
            cudnn=cudnn.version if cudnn else None,
            nccl=nccl.version if nccl else None,
            sass=pairs.compiled_for(mxnet, wanted),
            gpus=len(node.gpus),
        ),
    )


class Source:
    """URLs and digests of NVIDIA's files, with the user's mirror and digests.

    Args: `mirror` the URL of a mirror of NVIDIA's files, or ""; `sha256` {file name: digest} of the
    user.
    """

    def __init__(self, mirror: str, sha256: Mapping[str, str]) -> None:
        self.mirror, self.sha256 = mirror.rstrip("/"), sha256

    def url(self, url: str) -> str:
        """Return the URL of the file `url` on the mirror, or `url` itself without a mirror."""
        if not self.mirror:
            return url
        return re.sub(r"^https://developer\.(download\.)?nvidia\.com/compute", self.mirror, url)

    def file(self, url: str, sha256: str = "") -> software.File:
        """Return the file at `url`.

        The name of an RPM gets the suffix .rpm.

        Args: `sha256` the digest from the table, "" if unknown. The user's digest takes precedence.
        """
        name = url.rsplit("/", 1)[1]
        if name.startswith("cuda-repo-") and not name.endswith(".rpm"):
            name = re.sub(r"-rpm$", "", name) + ".rpm"
        return software.File(url=self.url(url), name=name, sha256=self.sha256.get(name, sha256))

    def library(self, found: Optional[software.LibraryFile]) -> Optional[software.LibraryFile]:
        """Return the archive of cuDNN or NCCL, or None for None."""
        return found and found.replaced(**vars(self.file(found.url, found.sha256)))


def packages(cuda: str) -> software.Packages:
    """Return the RPMs of a CUDA version."""
    row = cuda_row(cuda)
    pinned = row.pinned or {}
    developers = {
        name.replace("cublas", "cublas-dev"): version for name, version in row.patched.items()
    }
    return software.Packages(
        libraries=dict({name: pinned.get(name, "") for name in row.libraries}, **row.patched),
        toolkit=dict(
            {"cuda-toolkit-" + cuda.replace(".", "-"): ""},
            **row.patched,
            **developers,
            **pinned,
            **row.compilers,
        ),
    )


def other_cublas(cuda: str, rpms: Iterable[str]) -> str:
    """Return the reason and the cure if a node has cuBLAS of another CUDA, or "".

    The RPMs of CUDA 10.1 and 10.2 have one name for their cuBLAS, so yum would downgrade or replace
    the cuBLAS of the other CUDA.

    Args: `cuda` such as "10.1"; `rpms` a line "<name> <version>" for each package of the node.
    """
    pinned = {known: row.pinned for known, row in table().cuda.items() if row.pinned}
    for name, version in (line.split() for line in rpms):
        # The newest CUDA whose cuBLAS is not newer than the installed cuBLAS, else the oldest CUDA.
        owners = [known for known, names in pinned.items() if name in names]
        older = [one for one in owners if number(pinned[one][name])[:3] <= number(version)]
        owner = max(older, key=number) if older else min(owners, key=number, default=cuda)
        if owner != cuda:
            return (
                "the node has %s %s of CUDA %s, and yum keeps only one version of this package, so "
                "it cannot install CUDA %s beside CUDA %s: run \"yum remove 'cuda-*-%s' "
                'libcublas10 libcublas-devel" on the node, or set cuda_source: runfile. Then run '
                "provision.yml again" % (name, version, owner, cuda, owner, owner.replace(".", "-"))
            )
    return ""


def cuda_source(wanted: str, row: System, name: str, node: software.Machine) -> str:
    """Return the way to install CUDA on a node, such as "runfile".

    The way is `wanted`, or for "" the first way of the node's system. On a node without root's
    rights the way is "none". Raises BadInput if the node's system does not have the way `wanted`,
    or has no way.

    Args: `row` the table's row of the node's system; `name` the system in messages.
    """
    if not node.own_system:
        return "none"  # without root, users install their own CUDA
    if not row.cuda:
        raise BadInput(
            'mxcluster cannot install CUDA on %s: set cuda_version: "" to train on CPUs, or '
            "mxcluster_user: '' to use a CUDA that you install" % name
        )
    if wanted and wanted not in row.cuda:
        raise BadInput(
            "cuda_source=%s is impossible on %s: set cuda_source to %s, or remove this setting"
            % (wanted, name, " or ".join(row.cuda))
        )
    return wanted or row.cuda[0]
