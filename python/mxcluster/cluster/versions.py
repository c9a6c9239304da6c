"""Choose MXNet, CUDA, cuDNN, NCCL and driver of a node from the user's settings and the facts.

The code runs on the controller and connects to no node. The module `version_table` reads the
tables. The module `pairs` decides which versions work together.
"""

import re
from typing import Any, Dict, Iterable, List, Optional, Tuple

from mxcluster.cluster import pairs
from mxcluster.cluster.version_table import architecture, chip, cuda_row, number, table
from mxcluster.errors import BadInput
from mxcluster.model import shapes

Json = Dict[str, Any]


def check_branch(branch: int, cuda: str, devices: Iterable[str]) -> None:
    """Raise BadInput if a driver branch does not support a CUDA version and all GPUs of a node.

    Args: `branch` such as 470; `cuda` such as "9.2"; `devices` PCI device numbers (hexadecimal
    texts).
    """
    reasons, least = [], cuda_row(cuda)["driver"]
    if branch < number(least)[0]:
        reasons.append("CUDA %s needs %s or newer" % (cuda, least))
    for device in sorted(set(devices)):
        name, capability = chip(device)
        row = table()["architectures"][architecture(capability)] if capability else {}
        if branch > row.get("newest_driver", branch):
            reasons.append(
                "the GPU %s (%s) needs %d or older" % (device, name, row["newest_driver"])
            )
        if branch < row.get("oldest_driver", branch):
            reasons.append(
                "the GPU %s (%s) needs %d or newer" % (device, name, row["oldest_driver"])
            )
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
    branch: int
    for branch in table()["driver_branches"]:
        try:
            check_branch(branch, cuda, devices)
            return branch
        except BadInput as error:
            refusals.append(error)
    raise refusals[0]


def system(name: str, version: str) -> Optional[Tuple[str, Json]]:
    """Return (key, row) of a node's operating system in the table "systems" of versions.yml.

    Returns None if the table lacks the system. For ("CentOS", "7.9") the key is "CentOS 7", and for
    ("Ubuntu", "20.04") the key is "Ubuntu 20.04".

    Args: `name` and `version` the facts ansible_distribution and ansible_distribution_version.
    """
    rows = table()["systems"]
    for known in ("%s %s" % (name, version), "%s %s" % (name, version.split(".")[0])):
        if known in rows:
            return known, rows[known]
    return None


# The programs and libraries that a node needs, and their packages, by Ansible's os_family. Ansible
# uses the program ip to find a node's addresses.
INSTALL = {"Debian": "apt-get install -y", "RedHat": "yum install -y"}
PACKAGES = {
    "Debian": {
        "ip": "iproute2",
        "python3": "python3",
        "libgomp.so.1": "libgomp1",
        "libquadmath.so.0": "libquadmath0",
    },
    "RedHat": {
        "ip": "iproute",
        "python3": "python3",
        "libgomp.so.1": "libgomp",
        "libquadmath.so.0": "libquadmath",
    },
}


def check_system(node: Json) -> None:
    """Raise BadInput if the node lacks a program or library that mxcluster does not install.

    The message names the command that installs all missing programs and libraries.

    Args: `node` as in `decide`.
    """
    missing = [name for name in node["missing"] if name == "ip" or not node["own_system"]]
    if not node["own_system"] and not node["python"]:
        missing.append("python3")
    if not missing:
        return
    brings = PACKAGES.get(node["family"], {})
    cure = "install the missing programs and libraries"
    if all(name in brings for name in missing):
        cure = "run '%s %s' as root" % (
            INSTALL[node["family"]],
            " ".join(sorted(brings[name] for name in missing)),
        )
    raise BadInput(
        "the node lacks %s. On the node, %s. Then run the playbook again. The playbook has fetched "
        "and changed nothing" % (", ".join(missing), cure)
    )


_url = shapes.matching(r"(https?|file|ftp)://[^\s]+", "a URL, such as https://mirror/nvidia")
_digest = shapes.matching("[0-9a-fA-F]{64}", "a sha256 of 64 hexadecimal digits")
_fingerprint = shapes.matching("[0-9A-Fa-f ]{40,59}", "a fingerprint of 40 hexadecimal digits")
_NVIDIA = shapes.fields(
    {
        "nvidia_mirror": shapes.or_empty(_url),
        "nvidia_sha256": shapes.table(shapes.words, _digest),
        "nvidia_keys": shapes.each(
            shapes.fields({"name": shapes.words, "url": _url, "fingerprint": _fingerprint})
        ),
    }
)


def check_sources(choice: Json) -> None:
    """Refuse a wrong mirror, digest or signing key. Args: `choice` as for `decide`."""
    try:
        _NVIDIA({"nvidia_" + name: choice[name] for name in ("mirror", "sha256", "keys")})
    except shapes.Wrong as wrong:
        raise BadInput("%s: correct this value in the inventory" % wrong) from None


def decide(choice: Json, node: Json) -> Json:
    """Return the software to install on one node.

    Args:
        choice: the user's settings: "cuda_version" ("" for no CUDA), "mxnet_version", "mxnet_build"
            ("openblas" or "mkl"), "gpu_required", "cuda_source" ("" for the system's first way),
            "cudnn_version" ("" for the table's choice, or "none"), "mirror" (URL of a mirror of
            NVIDIA's files, or ""), "driver_install" ("true" if mxcluster replaces an older driver,
            "false" if mxcluster installs no driver), "sha256" ({file name: the user's digest}),
            "keys" (the user's signing keys, [] for NVIDIA's keys).
        node: "system", "system_version", "architecture", "python" (such as "3.6", or None), "gpus"
            (PCI device numbers), "driver" and "driver_installed" (versions of the loaded and of the
            installed module, or None), "own_system" (True if mxcluster may install system packages
            on the node), "family" (Ansible's os_family), "missing" (the required libraries and
            programs that the node lacks).

    Returns:
        {"target", "gpus": number of the node's GPUs, 0 for training on the CPU, "system",
        "family": a key of PACKAGES or "", "environment", "cuda": None or {"version", "source",
        ...its row}, "cudnn" and "nccl": None or {"version", ...}, "driver": None or {"branch",
        "cuda", "least", "installable"}, "installed": None or the state that verify.yml expects}.
        Each of NVIDIA's files is {"url", "name", "sha256" or ""}.

    Raises BadInput with the reason and the nearest cure if the choice does not work on the node.
    """
    check_sources(choice)
    if node["architecture"] != "x86_64":
        raise BadInput(
            "the node's architecture is %s, but MXNet's wheels require x86_64: remove the node "
            "from the inventory" % node["architecture"]
        )
    known = system(node["system"], node["system_version"])
    if node["own_system"] and known is None:
        raise BadInput(
            "mxcluster cannot install system packages on %s %s, only on %s: set mxcluster_user: '' "
            "to install without changes to the system"
            % (node["system"], node["system_version"], ", ".join(table()["systems"]))
        )
    check_system(node)
    row = known[1] if known else {"cuda": []}
    cuda = choice["cuda_version"]
    if cuda and choice["gpu_required"] and not node["gpus"]:
        raise BadInput(
            "the node has no NVIDIA GPU on its PCI bus, but gpu_required is set. Check the seat of "
            "the card (lspci -d 10de:). If the node has no card, remove the node from the "
            "inventory, or set gpu_required: false to train on the CPU"
        )
    if not node["gpus"]:
        cuda = ""
    mxnet, wanted = choice["mxnet_version"], pairs.target(cuda, choice["mxnet_build"] == "mkl")
    if cuda:
        cuda_row(cuda)  # refuses an unknown CUDA
    installable = bool(row.get("driver")) and node["own_system"]
    installs = installable and choice["driver_install"] != "false"
    # The role nvidia_driver replaces an older driver, or refuses the node.
    replaces = installable and choice["driver_install"] == "true"
    pairs.check(
        mxnet,
        wanted,
        {
            "python": node["python"] or row.get("python"),
            "gpus": node["gpus"],
            # The installed driver counts: the role loads this driver, or a restart does.
            "driver": None if replaces else node["driver_installed"] or node["driver"],
            "libcuda": bool(node["driver"] or node["driver_installed"] or installs),
        },
    )
    decision: Json = {
        "target": wanted,
        "gpus": len(node["gpus"]) if cuda else 0,
        "system": known[0] if known else "",
        "family": next((family for family in PACKAGES if family == node["family"]), ""),
        "environment": pairs.environment(mxnet, wanted),
        "cuda": None,
        "cudnn": None,
        "nccl": None,
        "driver": None,
        "installed": None,
    }
    if cuda:
        source = Source(choice["mirror"], choice["sha256"])
        decision["cuda"] = dict(
            cuda_row(cuda),
            version=cuda,
            source=cuda_source(choice["cuda_source"], row, known, node),
            rpm=[source.file(url) for url in cuda_row(cuda)["rpm"]],
            runfile=[source.file(**one) for one in cuda_row(cuda)["runfile"]],
            packages=packages(cuda),
            network_repo=source.url(table()["network_repo"]),
            keys=[
                dict(key, **source.file(key["url"])) for key in choice["keys"] or table()["keys"]
            ],
        )
        for name, found in (
            ("cudnn", pairs.cudnn(mxnet, wanted, choice["cudnn_version"])),
            ("nccl", pairs.nccl(mxnet, wanted)),
        ):
            if found:
                decision[name] = dict(
                    source.file(found["url"], found["sha256"]), version=found["version"]
                )
        decision["driver"] = {
            "branch": driver_branch(cuda, node["gpus"]),
            "cuda": cuda,
            "least": cuda_row(cuda)["driver"],
            "installable": installable,
        }
        if decision["cuda"]["source"] != "none":
            decision["installed"] = {
                "version": cuda,
                "release": cuda_row(cuda)["release"],
                "driver": cuda_row(cuda)["driver"],
                "folder": "/usr/local/cuda-" + cuda,
                "cudnn": (decision["cudnn"] or {}).get("version"),
                "nccl": (decision["nccl"] or {}).get("version"),
                "sass": pairs.compiled_for(mxnet, wanted),
                "gpus": len(node["gpus"]),
            }
    return decision


class Source:
    """URLs and digests of NVIDIA's files, with the user's mirror and digests.

    Args: `mirror` the URL of a mirror of NVIDIA's files, or ""; `sha256` {file name: digest} of the
    user.
    """

    def __init__(self, mirror: str, sha256: Dict[str, str]) -> None:
        self.mirror, self.sha256 = mirror.rstrip("/"), sha256

    def url(self, url: str) -> str:
        """Return the URL of the file `url` on the mirror, or `url` itself without a mirror."""
        return (
            re.sub(r"^https://developer\.(download\.)?nvidia\.com/compute", self.mirror, url)
            if self.mirror
            else url
        )

    def file(self, url: str, sha256: str = "") -> Json:
        """Return {"url", "name", "sha256"} of the file at `url`.

        The name of an RPM gets the suffix .rpm.

        Args: `sha256` the digest from the table, "" if unknown. The user's digest takes precedence.
        """
        name = url.rsplit("/", 1)[1]
        if name.startswith("cuda-repo-") and not name.endswith(".rpm"):
            name = re.sub(r"-rpm$", "", name) + ".rpm"
        return {"url": self.url(url), "name": name, "sha256": self.sha256.get(name, sha256)}


def packages(cuda: str) -> Dict[str, Dict[str, str]]:
    """Return {"toolkit": RPMs, "libraries": RPMs} of a CUDA version.

    The RPMs are {name: version}, with the version "" for any version.
    """
    row = cuda_row(cuda)
    pinned = row.get("pinned", {})
    libraries = dict(
        {name: pinned.get(name, "") for name in row["libraries"]},
        **row["patched"],
    )
    developers = {
        name.replace("cublas", "cublas-dev"): version for name, version in row["patched"].items()
    }
    return {
        "libraries": libraries,
        "toolkit": dict(
            dict.fromkeys(row["toolkit"], ""),
            **row["patched"],
            **developers,
            **pinned,
            **row.get("compilers", {}),
        ),
    }


def other_cublas(cuda: str, rpms: Iterable[str]) -> str:
    """Return the reason and the cure if a node has cuBLAS of another CUDA, or "".

    The RPMs of CUDA 10.1 and 10.2 have one name for their cuBLAS, so yum would downgrade or replace
    the cuBLAS of the other CUDA.

    Args: `cuda` such as "10.1"; `rpms` a line "<name> <version>" for each package of the node.
    """
    rows = table()["cuda"]
    pinned = {known: row["pinned"] for known, row in rows.items() if "pinned" in row}
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


def cuda_source(wanted: str, row: Json, known: Optional[Tuple[str, Json]], node: Json) -> str:
    """Return the way to install CUDA on a node, such as "runfile".

    The way is `wanted`, or for "" the first way of the node's system. On a node without root's
    rights the way is "none". Raises BadInput if the node's system does not have the way `wanted`,
    or has no way.

    Args: `row` the table's row of the node's system; `known` the result of `system`; `node` as in
    `decide`.
    """
    if not node["own_system"]:
        return "none"  # without root, users install their own CUDA
    if not row["cuda"]:
        raise BadInput(
            'mxcluster cannot install CUDA on %s: set cuda_version: "" to train on CPUs, or '
            "mxcluster_user: '' to use a CUDA that you install"
            % (known[0] if known else node["system"])
        )
    if wanted and wanted not in row["cuda"]:
        raise BadInput(
            "cuda_source=%s is impossible on %s: set cuda_source to %s, or remove this setting"
            % (wanted, known[0] if known else node["system"], " or ".join(row["cuda"]))
        )
    return wanted or row["cuda"][0]
