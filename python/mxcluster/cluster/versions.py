"""Choose MXNet, CUDA, cuDNN and driver of a node from the user's settings and the node's facts.

The code runs on the controller and connects to no node. The table versions.yml holds all known
versions.
"""

import functools
import os
import re
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from mxcluster.errors import BadInput, did_you_mean

Json = Dict[str, Any]

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "versions.yml")
CPU = "cpu"


@functools.lru_cache(maxsize=None)
def table() -> Json:
    """Return the content (dict) of versions.yml."""
    import yaml  # only the controller has PyYAML

    with open(TABLE, encoding="utf-8") as stream:
        found: Json = yaml.safe_load(stream)
    return found


def number(version: str) -> Tuple[int, ...]:
    """Return a version as a tuple of ints for comparisons, such as (9, 2, 148) for "9.2.148"."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def chip(device: str) -> Tuple[str, Optional[str]]:
    """Return (chip, compute capability) of a PCI device number (hexadecimal text).

    The result for "102d" is ("GK210", "3.7"), and for an unknown device ("", None).
    """
    for first, last, name, capability in table()["devices"]:
        if int(first, 16) <= int(device, 16) <= int(last, 16):
            return name, capability
    return "", None


def architecture(capability: str) -> str:
    """Return the architecture of a compute capability, such as "Kepler" for "3.7"."""
    found: str = next(
        name
        for name, known in table()["architectures"].items()
        if capability in known["capabilities"]
    )
    return found


def target(cuda: str, mkl: bool = False) -> str:
    """Return the target of a wheel, such as "cpu", "cu92", "cpu-mkl" or "cu92-mkl".

    Args: `cuda` a version such as "9.2", or "" for a CPU target; `mkl` True for a target with MKL.
    """
    return ("cu" + cuda.replace(".", "") if cuda else CPU) + ("-mkl" if mkl else "")


def wheel(mxnet: str, wanted: str) -> str:
    """Return the wheel of an MXNet version for a target.

    The result for ("1.2.1", "cu92") is "mxnet-cu92==1.2.1.post1". Raises BadInput that names the
    nearest versions if the table has no such wheel.

    Args: `mxnet` the version; `wanted` the target, as `target` returns it.
    """
    known = table()["mxnet"]
    if mxnet not in known:
        raise BadInput(
            "mxcluster's table has no MXNet %s%s: set mxnet_version to one of %s"
            % (mxnet, did_you_mean(mxnet, known), ", ".join(known))
        )
    if wanted not in known[mxnet]["wheels"]:
        what = spoken(wanted)
        others = [version for version in known if wanted in known[version]["wheels"]]
        cures = (
            ['set mxnet_version: "%s", the nearest version with a wheel' % nearest(mxnet, others)]
            if others
            else []
        )
        same = [
            one
            for one in known[mxnet]["wheels"]
            if one.endswith("-mkl") == wanted.endswith("-mkl") and one.startswith("cu")
        ]
        if wanted.startswith("cu") and same:
            cures.append(
                'set cuda_version: "%s", the nearest version for MXNet %s'
                % (nearest(version_of(wanted), [version_of(one) for one in same]), mxnet)
            )
        if wanted.endswith("-mkl"):
            cures.append("set mxnet_build: openblas")
        raise BadInput("MXNet %s has no wheel for %s: %s" % (mxnet, what, "; or ".join(cures)))
    wheel: str = known[mxnet]["wheels"][wanted]
    return wheel


def spoken(wanted: str) -> str:
    """Return a target as words for messages, such as "CUDA 9.2 with MKL" for "cu92-mkl"."""
    cuda = version_of(wanted)
    return ("CUDA " + cuda if cuda else "CPUs only") + (
        " with MKL" if wanted.endswith("-mkl") else ""
    )


def version_of(wanted: str) -> str:
    """Return the CUDA version of a target, such as "9.2" for "cu92-mkl", or "" for "cpu"."""
    digits = re.sub(r"\D", "", wanted)
    return "%s.%s" % (digits[:-1], digits[-1]) if digits else ""


def nearest(version: str, others: Sequence[str]) -> str:
    """Return the version in `others` that is nearest to `version`, counted in releases.

    Of two equally near versions, the function returns the newer version.
    """
    order = sorted(set(others) | {version}, key=number)
    return min(
        sorted(others, key=number, reverse=True),
        key=lambda other: abs(order.index(other) - order.index(version)),
    )


def environment(mxnet: str, wanted: str) -> Json:
    """Return {"builds", "hashes", "name", "note"} of an MXNet version for a target.

    These values are arguments of the module mxcluster_env. "builds" has an entry for each version
    of Python that this MXNet supports. Raises BadInput if MXNet has no wheel for the target.

    Args: `mxnet` the version; `wanted` the target.
    """
    first = wheel(mxnet, wanted)
    row, builds, hashes = table()["mxnet"][mxnet], [], {}
    for numpy, pythons in row["pythons"].items():
        for python in pythons:
            stand = table()["pythons"][python]
            wheels = [first, numpy, stand["graphviz"]] + list(row.get("instead") or stand["beside"])
            builds.append({"python": [python], "pip": stand["pip"], "wheels": wheels})
            hashes.update({one: table()["wheel_sha256"][one] for one in wheels + [stand["pip"]]})
    return {
        "builds": builds,
        "hashes": hashes,
        "name": "MXNet %s for %s" % (mxnet, spoken(wanted)),
        "note": row["note"],
    }


def pythons(mxnet: str) -> List[str]:
    """Return the versions of Python that the MXNet version `mxnet` supports, the oldest first."""
    return sorted(
        (python for known in table()["mxnet"][mxnet]["pythons"].values() for python in known),
        key=number,
    )


def check_python(mxnet: str, python: str) -> None:
    """Raise BadInput if the MXNet version `mxnet` does not support Python `python`, such as "3.6".

    The message names the reason and the nearest version of MXNet that supports this Python.
    """
    if python in pythons(mxnet):
        return
    if number(python) < (3, 6):
        raise BadInput(
            "Python %s is too old for mxcluster's nodes: install Python 3.6 (CentOS 7: yum install "
            "python3), and set mxnet_python to the path of Python 3.6" % python
        )
    works = [version for version in table()["mxnet"] if python in pythons(version)]
    cure = (
        'Set mxnet_version: "%s", the nearest version for this Python, or set'
        % nearest(mxnet, works)
        if works
        else "Set"
    )
    raise BadInput(
        "MXNet %s does not run on Python %s, only on %s. %s %s mxnet_python to another interpreter"
        % (mxnet, python, ", ".join(pythons(mxnet)), table()["mxnet"][mxnet]["note"], cure)
    )


def cuda_row(cuda: str) -> Json:
    """Return the table's row (dict) of a CUDA version.

    Raises BadInput if the table has no such version.
    """
    rows = table()["cuda"]
    if cuda not in rows:
        raise BadInput(
            "mxcluster's table has no CUDA %s%s: set cuda_version to one of %s"
            % (cuda, did_you_mean(cuda, rows), ", ".join(rows))
        )
    row: Json = rows[cuda]
    return row


def runs_on(cuda: str, capability: str) -> bool:
    """Return True if a CUDA version has code for GPUs of a compute capability.

    Args: `cuda` such as "9.2"; `capability` such as "3.7".
    """
    row = cuda_row(cuda)
    oldest, newest = (number(one) for one in row["capabilities"])
    return oldest <= number(capability) <= newest or capability in row.get("also", [])


def check_gpus(cuda: str, devices: Iterable[str]) -> None:
    """Raise BadInput if a GPU in `devices` is too old or too new for a CUDA version.

    Args: `cuda` such as "9.2"; `devices` PCI device numbers (hexadecimal texts).
    """
    for device in sorted(set(devices)):
        name, capability = chip(device)
        if capability is None or runs_on(
            cuda, capability
        ):  # the table lacks newer devices: accept an unknown device
            continue
        works = [one for one in table()["cuda"] if runs_on(one, capability)]
        age = "old" if number(capability) < number(cuda_row(cuda)["capabilities"][0]) else "new"
        cure = (
            "set cuda_version to %s" % " or ".join(works)
            if works
            else "remove this GPU from the node, since no CUDA in mxcluster's table supports it"
        )
        raise BadInput(
            "the GPU %s (%s, compute capability %s) is too %s for CUDA %s, which has code for "
            "compute capabilities %s to %s: %s"
            % (device, name, capability, age, cuda, *cuda_row(cuda)["capabilities"], cure)
        )


def check_driver(cuda: str, driver: Optional[str]) -> None:
    """Raise BadInput if a node's loaded driver is too old for a CUDA version.

    Args: `cuda` such as "9.2"; `driver` the driver's version, None without a driver.
    """
    least = cuda_row(cuda)["driver"]
    if driver and number(driver) < number(least):
        works = [
            one
            for one in table()["cuda"]
            if number(table()["cuda"][one]["driver"]) <= number(driver)
        ]
        raise BadInput(
            "the driver %s is too old for CUDA %s, which needs %s or newer: update the driver%s"
            % (
                driver,
                cuda,
                least,
                ", or set cuda_version to %s" % nearest(cuda, works) if works else "",
            )
        )


def driver_branch(cuda: str, devices: Iterable[str]) -> int:
    """Return the driver branch, such as 470, for a CUDA version and all GPUs in `devices`.

    Raises BadInput if no branch supports this CUDA together with all these GPUs. The arguments are
    those of `check_gpus`.
    """
    newest = []
    for device in devices:
        capability = chip(device)[1]
        if capability:
            row = table()["architectures"][architecture(capability)]
            newest.append(row.get("newest_driver", 10**6))
    branch: int
    for branch in table()["driver_branches"]:
        if branch <= min(newest, default=10**6) and branch >= number(cuda_row(cuda)["driver"])[0]:
            return branch
    raise BadInput(
        "no driver supports the GPUs %s together with CUDA %s: set cuda_version to 8.0 for Fermi "
        "GPUs, otherwise remove the oldest GPU" % (", ".join(sorted(set(devices))), cuda)
    )


def cudnn(cuda: str, wanted: str = "") -> Json:
    """Return {"version", "url", "sha256"} of a cuDNN for a CUDA version.

    Args: `cuda` such as "9.2"; `wanted` such as "7.6.5" or "7.6.5.32", or "" for the table's
    choice.

    Raises BadInput if the table has no such cuDNN.
    """
    cuda_row(cuda)
    rows = table()["cudnn"][cuda]
    found = (
        [version for version in rows if version == wanted or version.startswith(wanted + ".")]
        if wanted
        else [table()["cuda"][cuda]["cudnn"]]
    )
    if not found:
        raise BadInput(
            "mxcluster's table has no cuDNN %s for CUDA %s: set cudnn_version to one of %s"
            % (wanted, cuda, ", ".join(rows))
        )
    return dict(rows[found[-1]], version=found[-1])


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


def decide(choice: Json, node: Json) -> Json:
    """Return the software to install on one node.

    Args:
        choice: the user's settings: "cuda_version" ("" for no CUDA), "mxnet_version", "mxnet_build"
            ("openblas" or "mkl"), "gpu_required", "cuda_source" ("" for the system's first way),
            "cudnn_version" ("" for the table's choice, or "none"), "mirror" (URL of a mirror of
            NVIDIA's files, or ""), "sha256" ({file name: the user's digest}), "keys" (the user's
            signing keys, [] for NVIDIA's keys).
        node: "system", "system_version", "architecture", "python" (such as "3.6", or None), "gpus"
            (PCI device numbers), "driver" (version of the loaded module, or None), "own_system"
            (True if mxcluster may install system packages on the node), "family" (Ansible's
            os_family), "missing" (the required libraries and programs that the node lacks).

    Returns:
        {"target", "gpus": number of the node's GPUs, 0 for training on the CPU, "system",
        "environment", "cuda": None or {"version", "source", ...its row}, "cudnn": None or
        {"version", ...}, "driver": None or {"branch", "least", "installable"}, "installed": None
        or the state that verify.yml expects}. Each of NVIDIA's files is {"url", "name", "sha256"
        or ""}.

    Raises BadInput with the reason and the nearest cure if the choice does not work on the node.
    """
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
    wanted = target(cuda, choice["mxnet_build"] == "mkl")
    built = environment(choice["mxnet_version"], wanted)
    python = node["python"] or row.get("python")
    if python:
        check_python(choice["mxnet_version"], python)
    decision: Json = {
        "target": wanted,
        "gpus": len(node["gpus"]) if cuda else 0,
        "system": known[0] if known else "",
        "environment": built,
        "cuda": None,
        "cudnn": None,
        "driver": None,
        "installed": None,
    }
    if cuda:
        check_gpus(cuda, node["gpus"])
        check_driver(cuda, node["driver"])
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
        if choice["cudnn_version"] != "none":
            found = cudnn(cuda, choice["cudnn_version"])
            decision["cudnn"] = dict(
                source.file(found["url"], found["sha256"]), version=found["version"]
            )
        decision["driver"] = {
            "branch": driver_branch(cuda, node["gpus"]),
            "least": cuda_row(cuda)["driver"],
            "installable": bool(row.get("driver")),
        }
        if decision["cuda"]["source"] != "none":
            decision["installed"] = {
                "version": cuda,
                "release": cuda_row(cuda)["release"],
                "driver": cuda_row(cuda)["driver"],
                "folder": "/usr/local/cuda-" + cuda,
                "cudnn": (decision["cudnn"] or {}).get("version"),
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
    libraries = dict(dict.fromkeys(row["libraries"], ""), **row["patched"])
    developers = {
        name.replace("cublas", "cublas-dev"): version for name, version in row["patched"].items()
    }
    return {
        "libraries": libraries,
        "toolkit": dict(dict.fromkeys(row["toolkit"], ""), **row["patched"], **developers),
    }


def cuda_source(wanted: str, row: Json, known: Optional[Tuple[str, Json]], node: Json) -> str:
    """Return the way to install CUDA on a node, such as "runfile".

    The way is `wanted`, or for "" the first way of the node's system. On a node without root's
    rights the way is "none". Raises BadInput if the node's system does not have the way `wanted`.

    Args: `row` the table's row of the node's system; `known` the result of `system`; `node` as in
    `decide`.
    """
    if not node["own_system"]:
        return "none"  # without root, users install their own CUDA
    if wanted and wanted not in row["cuda"]:
        raise BadInput(
            "cuda_source=%s is impossible on %s: set cuda_source to %s, or remove this setting"
            % (wanted, known[0] if known else node["system"], " or ".join(row["cuda"]))
        )
    return wanted or row["cuda"][0]
