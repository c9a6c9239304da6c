"""Make the verdict's lines about GPUs from the check results of the nodes with GPUs."""

from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from mxcluster.cluster.version_table import has_code, number
from mxcluster.lists import several

Json = Dict[str, Any]
# The result of a check: (True, ""), (False, fault and cure), or (None, why the check did not run).
Result = Tuple[Optional[bool], str]


def judge(
    answers: Dict[str, Json],
    line: Callable[[str, List[str]], Json],
    skipped: Callable[[str, str], Json],
) -> List[Json]:
    """Return the verdict's lines about GPUs: [{"check", "result", "why"}, ...].

    The list is empty if no node has GPUs. If a check could not run on some nodes, one line "not
    run" names these nodes.

    Args: `answers` {host: result of `gpu_check.check`, with the plan's "cuda" of the host as
    "wanted"}; `line` and `skipped` the functions of `verify` with these names.
    """
    if not answers:
        return []
    lines = []
    for label, check in CHECKS:
        found = {host: check(answer) for host, answer in sorted(answers.items())}
        why = ["%s: %s" % (host, text) for host, (said, text) in found.items() if said is False]
        quiet = [(host, text) for host, (said, text) in found.items() if said is None]
        if why or len(quiet) < len(found):
            lines.append(line(label, why))
        if quiet:
            lines.append(
                skipped(label, "%s: %s" % (", ".join(host for host, _ in quiet), quiet[0][1]))
            )
    return lines


def driver(answer: Json) -> Result:
    """Check that a new enough driver is loaded and shows all GPUs of the PCI bus.

    Args: `answer` the node's item of `answers` in `judge`, as in all checks of this module.
    """
    wanted, on_bus = answer["wanted"], answer["wanted"].get("gpus")
    if not answer["driver"]:
        return False, (
            "the PCI bus has %s, but nvidia-smi shows none: install driver version %s or "
            "newer. If such a driver is installed, restart the node"
            % (several(on_bus, "GPU") if on_bus else "NVIDIA GPUs", wanted["driver"])
        )
    if number(answer["driver"]) < number(wanted["driver"]):
        return False, "driver %s is older than %s, which CUDA %s needs: install a newer driver" % (
            answer["driver"],
            wanted["driver"],
            wanted["version"],
        )
    if on_bus is None:
        return None, "the node record has no number of GPUs: run provision.yml"
    if len(answer["listed"]) != on_bus:
        return False, "nvidia-smi shows %s, but the PCI bus has %d: see dmesg on this node" % (
            several(len(answer["listed"]), "GPU"),
            on_bus,
        )
    return True, ""


def nouveau(answer: Json) -> Result:
    """Check that the driver nouveau, which conflicts with NVIDIA's driver, is not loaded."""
    if answer["nouveau"]:
        return False, "the driver nouveau is loaded: restart the node"
    return True, ""


def nvcc(answer: Json) -> Result:
    """Check that CUDA's compiler nvcc has the planned release."""
    if answer["nvcc"] is None:
        return None, "only CUDA's libraries are installed"
    if answer["nvcc"].split(".")[:2] != answer["wanted"]["release"].split(".")[:2]:
        return False, "nvcc has version %s, not %s: run provision.yml" % (
            answer["nvcc"],
            answer["wanted"]["release"],
        )
    return True, ""


def libraries(answer: Json) -> Result:
    """Check that the dynamic linker finds all libraries that libmxnet.so needs."""
    missing = answer["unresolved"]
    if missing:
        return (
            False,
            "libmxnet.so needs %s, which the linker does not find: run provision.yml"
            % ", ".join(missing),
        )
    return True, ""


def cuda_sees(answer: Json) -> Result:
    """Check that CUDA's driver library shows the GPUs of nvidia-smi, in the same order."""
    found = _probed(answer, "driver")
    if isinstance(found, tuple):
        return found
    gpus, listed = found["gpus"], answer["listed"]
    for index, (gpu, smi) in enumerate(zip(gpus, listed)):
        if (gpu["uuid"] or smi["uuid"]) != smi["uuid"] or _bus(gpu["bus"]) != _bus(smi["bus"]):
            return False, (
                "GPU %d is %s (bus %s) for CUDA, but %s (bus %s) for nvidia-smi: remove "
                "CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER from the settings of the node's users"
                % (index, gpu["uuid"], _bus(gpu["bus"]), smi["uuid"], _bus(smi["bus"]))
            )
    if len(gpus) != len(listed):
        return False, (
            "CUDA shows %s, but nvidia-smi %d: give the training user the right to open all of "
            "/dev/nvidia*" % (several(len(gpus), "GPU"), len(listed))
        )
    return True, ""


def code(answer: Json) -> Result:
    """Check that MXNet has machine code for every GPU, also for a GPU outside the table."""
    found, sass = _probed(answer, "driver"), answer["wanted"].get("sass")
    if not sass:
        return None, "an earlier version of mxcluster wrote the node record: run provision.yml"
    if isinstance(found, tuple):
        return None, "CUDA shows no GPU"
    bad = [
        "GPU %d (%s, compute capability %s)" % (index, gpu["name"], gpu["capability"])
        for index, gpu in enumerate(found["gpus"])
        if not has_code(sass, gpu["capability"])
    ]
    if bad:
        return False, (
            "MXNet has code for the compute capabilities %s, and not for %s: set another "
            "mxnet_version and cuda_version" % (", ".join(sass), "; ".join(bad))
        )
    return True, ""


def runtime(answer: Json) -> Result:
    """Check CUDA's runtime library: the planned version, a driver for it, and all GPUs."""
    found, below = _probed(answer, "runtime"), _probed(answer, "driver")
    if isinstance(found, tuple):
        return found
    wanted = answer["wanted"]
    major, minor = number(wanted["version"])
    # libcudart has the version of the toolkit: 9020 for 9.2.
    if found["version"] != 1000 * major + 10 * minor:
        return False, "libcudart in %s has version %s, not %s: run provision.yml" % (
            wanted["folder"],
            _cuda(found["version"]),
            wanted["version"],
        )
    if not isinstance(below, tuple) and below["version"] < found["version"]:
        return False, (
            "the driver %s supports CUDA up to %s, not %s: install driver %s or newer"
            % (answer["driver"], _cuda(below["version"]), wanted["version"], wanted["driver"])
        )
    if found["count"] != len(answer["listed"]):
        return False, "libcudart shows %s, but nvidia-smi %d: %s" % (
            several(found["count"], "GPU"),
            len(answer["listed"]),
            RIGHTS,
        )
    return True, ""


def cudnn(answer: Json) -> Result:
    """Check that cuDNN's header and the loaded library have the planned version."""
    wanted: Optional[str] = answer["wanted"]["cudnn"]
    if not wanted:
        return None, "cudnn_version is none"
    loaded = (answer["probe"] or {}).get("cudnn")
    for found in [answer["cudnn"]] + [loaded] * (loaded is not None):
        if found != ".".join(wanted.split(".")[:3]):
            return False, "cuDNN is %s, not %s: run provision.yml" % (found or "missing", wanted)
    return True, ""


def nccl(answer: Json) -> Result:
    """Check that the loaded NCCL has the planned version."""
    wanted: Optional[str] = answer["wanted"].get("nccl")
    if not wanted:
        return None, "this MXNet contains NCCL"
    if answer["probe"] is None:
        return None, "no driver shows a GPU"
    if answer["probe"].get("nccl") != wanted:
        return False, "NCCL is %s, not %s: run provision.yml" % (
            answer["probe"].get("nccl") or "missing",
            wanted,
        )
    return True, ""


def computes(answer: Json) -> Result:
    """Check that MXNet's test computation succeeded on every GPU."""
    if not answer["trials"]:
        return None, "no driver shows a GPU"
    bad = ["GPU %s: %s" % one for one in _wrong(answer) if "->" not in one[0]]
    return (False, "; ".join(bad)) if bad else (True, "")


def copies(answer: Json) -> Result:
    """Check that data arrive unchanged in copies between all pairs of GPUs."""
    pairs = [one for one in answer["trials"] if "->" in one]
    if not pairs:
        return None, "the driver shows fewer than two GPUs"
    bad = [one for one in _wrong(answer) if "->" in one[0]]
    if not bad:
        return True, ""
    below = _probed(answer, "driver")
    peers = [] if isinstance(below, tuple) else below["peers"]
    direct = any([int(end) for end in one.split(" -> ")] in peers for one, _ in bad)
    return False, "copies from GPU %s%s" % (
        "; ".join("%s: %s" % one for one in bad[:6]),
        ". The GPUs have direct access to each other, and an IOMMU or ACS of the PCI bridges may "
        "change the data. Switch off the IOMMU in the BIOS (intel_iommu=off, amd_iommu=off), or "
        "set MXNET_ENABLE_GPU_P2P=0 for the job"
        if direct
        else ": see dmesg on this node",
    )


def _wrong(answer: Json) -> List[Tuple[str, str]]:
    return [(what, why) for what, why in sorted(answer["trials"].items()) if why]


def _probed(answer: Json, library: str) -> Union[Json, Result]:
    """Return the answer of a library in `cuda_probe`, or the result of a check without an answer.

    Args: `library` "driver" or "runtime".
    """
    probe = answer["probe"]
    if probe is None:
        return None, "no driver shows a GPU"
    found: Json = probe if "error" in probe else probe[library]
    if "error" not in found:
        return found
    known = DRIVER if library == "driver" else RUNTIME
    name, cure = known.get(found.get("status") or 0, ("", "see dmesg on this node"))
    return False, "%s%s: %s" % (found["error"], " (%s)" % name if name else "", cure)


def _bus(text: str) -> str:
    """Return a PCI address with four digits of the domain. nvidia-smi writes eight digits."""
    return text.lower()[-len("0000:3b:00.0") :]


def _cuda(version: int) -> str:
    """Return a version of CUDA's libraries as text, such as "9.2" for 9020."""
    return "%d.%d" % (version // 1000, version % 1000 // 10)


# The meaning of a status of libcuda (cuda.h, enum CUresult), and the cure.
RIGHTS = "run `nvidia-smi` as the training user, and give this user the right to open /dev/nvidia*"
RESTART = "restart the node"
UVM = "/dev/nvidia-uvm is often missing: run `nvidia-modprobe -u -c=0` as root"
DRIVER = {
    1: ("invalid value", RESTART),
    2: ("out of memory", "find the program on this GPU with `nvidia-smi`, and end this program"),
    3: ("not initialized", RESTART),
    34: ("stub library", "remove the folder stubs of the CUDA toolkit from the linker's path"),
    46: ("device unavailable", "end the program on this GPU, or run `nvidia-smi -c DEFAULT`"),
    100: ("no device", RIGHTS),
    101: ("invalid device", RESTART),
    304: ("operating system", RIGHTS),
    800: ("not permitted", RIGHTS),
    802: ("system not ready", "start nvidia-fabricmanager, and wait until it has started"),
    803: ("driver and library differ", "the loaded module has another version: restart the node"),
    804: ("compatibility package", "remove cuda-compat from the linker's path"),
    999: ("unknown", UVM),
}
# The meaning of a status of libcudart (driver_types.h, enum cudaError). CUDA 10.1 changed numbers.
RUNTIME = {
    35: ("driver too old", "install a newer driver, or set an older cuda_version"),
    38: ("no device", RIGHTS),
    30: ("unknown", UVM),
    **DRIVER,
}
CHECKS = (
    ("a driver that CUDA works with", driver),
    ("no nouveau", nouveau),
    ("CUDA shows the GPUs of nvidia-smi", cuda_sees),
    ("MXNet's code for every GPU", code),
    ("CUDA's compiler", nvcc),
    ("CUDA's runtime", runtime),
    ("the libraries that MXNet needs", libraries),
    ("cuDNN", cudnn),
    ("NCCL", nccl),
    ("MXNet computes on every GPU", computes),
    ("MXNet copies between all GPUs", copies),
)
