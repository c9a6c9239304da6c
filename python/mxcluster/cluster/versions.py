"""Which MXNet, CUDA, cuDNN and driver go on a node: what the person chose, held against what the node is.

Pure: the table (versions.yml) and what is known of a node in, a decision or a refusal out. Runs on the controller.
"""
import functools
import os
import re
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from .errors import BadInput, did_you_mean

Json = Dict[str, Any]

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "versions.yml")
CPU = "cpu"


@functools.lru_cache(maxsize=None)
def table() -> Json:
    """The table."""
    import yaml  # the controller has it
    with open(TABLE, encoding="utf-8") as stream:
        return yaml.safe_load(stream)


def number(version: str) -> Tuple[int, ...]:
    """(9, 2, 148) of "9.2.148", to compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def chip(device: str) -> Tuple[str, Optional[str]]:
    """("GK210", "3.7") of the PCI device number "102d", in hexadecimal; ("", None) of one that is not in the table."""
    for first, last, name, capability in table()["devices"]:
        if int(first, 16) <= int(device, 16) <= int(last, 16):
            return name, capability
    return "", None


def architecture(capability: str) -> str:
    """'Kepler' of "3.7"."""
    return next(name for name, known in table()["architectures"].items() if capability in known["capabilities"])


def target(cuda: str, mkl: bool = False) -> str:
    """What a wheel is built for: "cpu", "cu92", "cpu-mkl", "cu92-mkl"; `cuda` is "9.2", or "" for none."""
    return ("cu" + cuda.replace(".", "") if cuda else CPU) + ("-mkl" if mkl else "")


def wheel(mxnet: str, wanted: str) -> str:
    """`mxnet-cu92==1.2.1.post1` of ("1.2.1", "cu92"). BadInput, with the nearest that there is, if there is none."""
    known = table()["mxnet"]
    if mxnet not in known:
        raise BadInput("there is no MXNet %s that mxcluster trains with%s: set mxnet_version to one of %s"
                       % (mxnet, did_you_mean(mxnet, known), ", ".join(known)))
    if wanted not in known[mxnet]["wheels"]:
        what = spoken(wanted)
        others = [version for version in known if wanted in known[version]["wheels"]]
        cures = ["mxnet_version: \"%s\" is the nearest that does" % nearest(mxnet, others)] if others else []
        same = [one for one in known[mxnet]["wheels"] if one.endswith("-mkl") == wanted.endswith("-mkl") and one.startswith("cu")]
        if wanted.startswith("cu") and same:
            cures.append("cuda_version: \"%s\" is the nearest that MXNet %s goes with" % (nearest(
                version_of(wanted), [version_of(one) for one in same]), mxnet))
        if wanted.endswith("-mkl"):
            cures.append("set mxnet_build: openblas")
        raise BadInput("MXNet %s was never made for %s: %s" % (mxnet, what, "; ".join(cures)))
    return known[mxnet]["wheels"][wanted]


def spoken(wanted: str) -> str:
    """'CUDA 9.2 with MKL' of "cu92-mkl"."""
    cuda = version_of(wanted)
    return ("CUDA " + cuda if cuda else "CPUs alone") + (" with MKL" if wanted.endswith("-mkl") else "")


def version_of(wanted: str) -> str:
    """"9.2" of "cu92-mkl", "" of "cpu"."""
    digits = re.sub(r"\D", "", wanted)
    return "%s.%s" % (digits[:-1], digits[-1]) if digits else ""


def nearest(version: str, others: Sequence[str]) -> str:
    """Of `others` the one that is the fewest releases away; the newer of two."""
    order = sorted(set(others) | {version}, key=number)
    return min(sorted(others, key=number, reverse=True), key=lambda other: abs(order.index(other) - order.index(version)))


def environment(mxnet: str, wanted: str) -> Json:
    """What the module mxcluster_env builds: {"builds", "hashes", "name", "note"}, of every Python that this MXNet runs on."""
    first = wheel(mxnet, wanted)
    row, builds, hashes = table()["mxnet"][mxnet], [], {}
    for numpy, pythons in row["pythons"].items():
        for python in pythons:
            stand = table()["pythons"][python]
            wheels = [first, numpy, stand["graphviz"]] + list(row.get("instead") or stand["beside"])
            builds.append({"python": [python], "pip": stand["pip"], "wheels": wheels})
            hashes.update({one: table()["wheel_sha256"][one] for one in wheels + [stand["pip"]]})
    return {"builds": builds, "hashes": hashes, "name": "MXNet %s for %s" % (mxnet, spoken(wanted)), "note": row["note"]}


def pythons(mxnet: str) -> List[str]:
    """The Pythons that this MXNet runs on, the oldest first."""
    return sorted((python for known in table()["mxnet"][mxnet]["pythons"].values() for python in known), key=number)


def check_python(mxnet: str, python: str) -> None:
    """BadInput, with the reason and the nearest that works, if this MXNet does not run on Python `python` ("3.6")."""
    if python in pythons(mxnet):
        return
    if number(python) < (3, 6):
        raise BadInput("Python %s is too old for mxcluster's nodes: install Python 3.6 (CentOS 7: yum install python3) and set "
                       "mxnet_python to it" % python)
    works = [version for version in table()["mxnet"] if python in pythons(version)]
    cure = "mxnet_version: \"%s\" is the nearest that runs on it" % nearest(mxnet, works) if works else "none of the others does"
    raise BadInput("MXNet %s does not run on Python %s, only on %s. %s %s; or set mxnet_python to another interpreter"
                   % (mxnet, python, ", ".join(pythons(mxnet)), table()["mxnet"][mxnet]["note"], cure))


def cuda_row(cuda: str) -> Json:
    """The table's row of a version of CUDA. BadInput if there is none."""
    rows = table()["cuda"]
    if cuda not in rows:
        raise BadInput("there is no CUDA %s in mxcluster's table%s: set cuda_version to one of %s"
                       % (cuda, did_you_mean(cuda, rows), ", ".join(rows)))
    return rows[cuda]


def runs_on(cuda: str, capability: str) -> bool:
    """Whether this CUDA has code that a GPU of this compute capability runs."""
    row = cuda_row(cuda)
    oldest, newest = (number(one) for one in row["capabilities"])
    return oldest <= number(capability) <= newest or capability in row.get("also", [])


def check_gpus(cuda: str, devices: Iterable[str]) -> None:
    """BadInput if a GPU, known by its PCI device number, is too old or too new for this CUDA."""
    for device in sorted(set(devices)):
        name, capability = chip(device)
        if capability is None or runs_on(cuda, capability):  # one that is newer than the table may be anything
            continue
        works = [one for one in table()["cuda"] if runs_on(one, capability)]
        age = "old" if number(capability) < number(cuda_row(cuda)["capabilities"][0]) else "new"
        cure = "set cuda_version to %s" % " or ".join(works) if works else "no CUDA of the table has, so take it out (gpus: [])"
        raise BadInput("its GPU %s (%s, compute capability %s) is too %s for CUDA %s, which has code for %s to %s: %s"
                       % (device, name, capability, age, cuda, *cuda_row(cuda)["capabilities"], cure))


def check_driver(cuda: str, driver: Optional[str]) -> None:
    """BadInput if the driver that runs on the node is too old for this CUDA."""
    least = cuda_row(cuda)["driver"]
    if driver and number(driver) < number(least):
        works = [one for one in table()["cuda"] if number(table()["cuda"][one]["driver"]) <= number(driver)]
        raise BadInput("its driver %s is too old for CUDA %s, which needs %s or newer: install a newer one%s" % (
            driver, cuda, least, ", or set cuda_version to %s" % nearest(cuda, works) if works else ""))


def driver_branch(cuda: str, devices: Iterable[str]) -> int:
    """The branch of drivers that serves all GPUs of a node and this CUDA. BadInput if there is none."""
    newest = []
    for device in devices:
        capability = chip(device)[1]
        if capability:
            row = table()["architectures"][architecture(capability)]
            newest.append(row.get("newest_driver", 10 ** 6))
    for branch in table()["driver_branches"]:
        if branch <= min(newest, default=10 ** 6) and branch >= number(cuda_row(cuda)["driver"])[0]:
            return branch
    raise BadInput("no driver serves its GPUs %s and CUDA %s: set cuda_version to 8.0 for Fermi, or take the old GPU out"
                   % (", ".join(sorted(set(devices))), cuda))


def cudnn(cuda: str, wanted: str = "") -> Json:
    """{"version", "url", "sha256"} of the cuDNN that goes with a CUDA; `wanted` "7.6.5" or "7.6.5.32", else the newest."""
    cuda_row(cuda)
    rows = table()["cudnn"][cuda]
    found = [version for version in rows if version == wanted or version.startswith(wanted + ".")] if wanted else [
        table()["cuda"][cuda]["cudnn"]]
    if not found:
        raise BadInput("there is no cuDNN %s for CUDA %s in mxcluster's table: set cudnn_version to one of %s"
                       % (wanted, cuda, ", ".join(rows)))
    return dict(rows[found[-1]], version=found[-1])


def system(name: str, version: str) -> Optional[Tuple[str, Json]]:
    """(name, row): ("CentOS", "7.9") is "CentOS 7", ("Ubuntu", "20.04") "Ubuntu 20.04"; None if not known."""
    rows = table()["systems"]
    for known in ("%s %s" % (name, version), "%s %s" % (name, version.split(".")[0])):
        if known in rows:
            return known, rows[known]
    return None


# What a node needs of its system, and the package that brings it, by Ansible's os_family. The program ip tells Ansible the
# addresses of a node.
INSTALL = {"Debian": "apt-get install -y", "RedHat": "yum install -y"}
PACKAGES = {"Debian": {"ip": "iproute2", "python3": "python3", "libgomp.so.1": "libgomp1", "libquadmath.so.0": "libquadmath0"},
            "RedHat": {"ip": "iproute", "python3": "python3", "libgomp.so.1": "libgomp", "libquadmath.so.0": "libquadmath"}}


def check_system(node: Json) -> None:
    """BadInput if the system lacks what is needed and mxcluster does not install, with the command that brings all of it."""
    missing = [name for name in node["missing"] if name == "ip" or not node["own_system"]]
    if not node["own_system"] and not node["python"]:
        missing.append("python3")
    if not missing:
        return
    brings = PACKAGES.get(node["family"], {})
    cure = "install what brings them"
    if all(name in brings for name in missing):
        cure = "as root, '%s %s'" % (INSTALL[node["family"]], " ".join(sorted(brings[name] for name in missing)))
    raise BadInput("its system lacks %s. There, %s; then run this again. Nothing was fetched or changed"
                   % (", ".join(missing), cure))


def decide(choice: Json, node: Json) -> Json:
    """What goes on one node.

    `choice`, as the person set it: "cuda_version" ("" for none anywhere), "mxnet_version", "mxnet_build" ("openblas" or "mkl"),
    "gpu_required", "cuda_source" ("" for the first that the system has), "cudnn_version" ("" for the newest, "none"), "mirror"
    (of NVIDIA's files, or ""), "sha256" (the person's own, by file name), "keys" ([] for NVIDIA's own).
    `node`: "system", "system_version", "architecture", "python" ("3.6", None if there is none yet), "gpus" (PCI device numbers),
    "driver" (of the loaded module, None), "own_system" (whether mxcluster may install anything there), "family" (Ansible's
    os_family), "missing" (libraries and programs that it needs and has not).

    {"target", "gpus": how many of those on its bus it trains on, "system", "environment", "cuda": None or {"version", "source",
    ...its row}, "cudnn": None or {"version", ...}, "driver": None or {"branch", "least", "installable"}, "installed":
    None or what verify.yml should find}; each file of NVIDIA's is {"url", "name", "sha256" or ""}.
    BadInput with the reason and the nearest that works.
    """
    if node["architecture"] != "x86_64":
        raise BadInput("it is a machine for %s, and MXNet's wheels are for x86_64: take it out" % node["architecture"])
    known = system(node["system"], node["system_version"])
    if node["own_system"] and known is None:
        raise BadInput("%s %s is not a system that mxcluster can install on; it knows %s. Without touching the system: "
                       "mxcluster_user: ''" % (node["system"], node["system_version"], ", ".join(table()["systems"])))
    check_system(node)
    row = known[1] if known else {"cuda": []}
    cuda = choice["cuda_version"]
    if cuda and choice["gpu_required"] and not node["gpus"]:
        raise BadInput("it has no NVIDIA GPU on its PCI bus, and gpu_required is set: take the node out, look whether the card "
                       "is seated (lspci -d 10de:), or set gpu_required: false for it to train on its CPU")
    if not node["gpus"]:
        cuda = ""
    wanted = target(cuda, choice["mxnet_build"] == "mkl")
    built = environment(choice["mxnet_version"], wanted)
    python = node["python"] or row.get("python")
    if python:
        check_python(choice["mxnet_version"], python)
    decision = {"target": wanted, "gpus": len(node["gpus"]) if cuda else 0, "system": known[0] if known else "",
                "environment": built, "cuda": None, "cudnn": None, "driver": None, "installed": None}
    if cuda:
        check_gpus(cuda, node["gpus"])
        check_driver(cuda, node["driver"])
        source = Source(choice["mirror"], choice["sha256"])
        decision["cuda"] = dict(cuda_row(cuda), version=cuda, source=cuda_source(choice["cuda_source"], row, known, node),
                                rpm=[source.file(url) for url in cuda_row(cuda)["rpm"]],
                                runfile=[source.file(**one) for one in cuda_row(cuda)["runfile"]],
                                packages=packages(cuda), network_repo=source.url(table()["network_repo"]),
                                keys=[dict(key, **source.file(key["url"])) for key in choice["keys"] or table()["keys"]])
        if choice["cudnn_version"] != "none":
            found = cudnn(cuda, choice["cudnn_version"])
            decision["cudnn"] = dict(source.file(found["url"], found["sha256"]), version=found["version"])
        decision["driver"] = {"branch": driver_branch(cuda, node["gpus"]), "least": cuda_row(cuda)["driver"],
                              "installable": bool(row.get("driver"))}
        if decision["cuda"]["source"] != "none":
            decision["installed"] = {"version": cuda, "release": cuda_row(cuda)["release"], "driver": cuda_row(cuda)["driver"],
                                     "folder": "/usr/local/cuda-" + cuda, "cudnn": (decision["cudnn"] or {}).get("version"),
                                     "gpus": len(node["gpus"])}
    return decision


class Source:
    """Where files come from: a mirror in the place of NVIDIA's servers, and what the person knows of the files."""

    def __init__(self, mirror: str, sha256: Dict[str, str]) -> None:
        self.mirror, self.sha256 = mirror.rstrip("/"), sha256

    def url(self, url: str) -> str:
        """The same file on the mirror, if there is one."""
        return re.sub(r"^https://developer\.(download\.)?nvidia\.com/compute", self.mirror, url) if self.mirror else url

    def file(self, url: str, sha256: str = "") -> Json:
        """{"url", "name", "sha256"} of a file. RPMs are called so, which NVIDIA does not always do."""
        name = url.rsplit("/", 1)[1]
        if name.startswith("cuda-repo-") and not name.endswith(".rpm"):
            name = re.sub(r"-rpm$", "", name) + ".rpm"
        return {"url": self.url(url), "name": name, "sha256": self.sha256.get(name, sha256)}


def packages(cuda: str) -> Dict[str, Dict[str, str]]:
    """What the RPMs of a CUDA are to be, {name: version, "" for any}, by "toolkit" and "libraries"."""
    row = cuda_row(cuda)
    libraries = dict(dict.fromkeys(row["libraries"], ""), **row["patched"])
    developers = {name.replace("cublas", "cublas-dev"): version for name, version in row["patched"].items()}
    return {"libraries": libraries, "toolkit": dict(dict.fromkeys(row["toolkit"], ""), **row["patched"], **developers)}


def cuda_source(wanted: str, row: Json, known: Optional[Tuple[str, Json]], node: Json) -> str:
    """The way to install CUDA on a node: `wanted`, or the first that its system has. BadInput if it has not that one."""
    if not node["own_system"]:
        return "none"  # whoever has no root brings his own
    if wanted and wanted not in row["cuda"]:
        raise BadInput("CUDA cannot be installed as %s on %s: set cuda_source to %s, or leave it away"
                       % (wanted, known[0] if known else node["system"], " or ".join(row["cuda"])))
    return wanted or row["cuda"][0]
