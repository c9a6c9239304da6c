"""The lines of the verdict that are about GPUs, from what the nodes that have some have answered. Pure."""
from typing import Any, Callable, Dict, List, Optional

from .versions import number

Json = Dict[str, Any]


def judge(answers: Dict[str, Json], line: Callable[[str, List[str]], Json], skipped: Callable[[str, str], Json]) -> List[Json]:
    """[line, ...]; none if no node has a GPU.

    answers: {host: answer of `gpus.check`, with "wanted", what the plan says of its CUDA}; `line` and `skipped` are
    those of `verify`.
    A check that could not be made on some node is a line of its own, which says so.
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
            lines.append(skipped(label, "%s: %s" % (", ".join(host for host, _ in quiet), quiet[0][1])))
    return lines


# Each gives (True, ""), (False, what is wrong and what to do) or (None, why it could not be checked).

def driver(answer: Json) -> tuple:
    """Whether a driver is loaded that is new enough."""
    wanted = answer["wanted"]
    if not answer["driver"]:
        return False, ("the PCI bus has %d GPUs and nvidia-smi shows none: install a driver, %s or newer, or start the node anew "
                       "if one was installed" % (wanted["gpus"], wanted["driver"]))
    if number(answer["driver"]) < number(wanted["driver"]):
        return False, "driver %s is older than %s, which CUDA %s needs: install a newer one" % (
            answer["driver"], wanted["driver"], wanted["version"])
    if answer["listed"] != wanted["gpus"]:
        return False, "nvidia-smi shows %d GPUs and the PCI bus has %d: look into dmesg" % (answer["listed"], wanted["gpus"])
    return True, ""


def nouveau(answer: Json) -> tuple:
    """Whether the free driver is away."""
    return (False, "nouveau is loaded: start the node anew") if answer["nouveau"] else (True, "")


def nvcc(answer: Json) -> tuple:
    """Whether CUDA's compiler is the one of the release."""
    if answer["nvcc"] is None:
        return None, "only CUDA's libraries are installed"
    if answer["nvcc"].split(".")[:2] != answer["wanted"]["release"].split(".")[:2]:
        return False, "nvcc is of %s, not of %s: run provision.yml" % (answer["nvcc"], answer["wanted"]["release"])
    return True, ""


def device_query(answer: Json) -> tuple:
    """What NVIDIA's own test says."""
    said = answer["device_query"]
    if said is None:
        return None, "deviceQuery is not installed, or there is no driver (package cuda-demo-suite)"
    return (True, "") if said.endswith("Result = PASS") else (False, "deviceQuery says: %s" % said)


def libraries(answer: Json) -> tuple:
    """Whether the linker finds all that MXNet's library needs."""
    missing = answer["unresolved"]
    if missing:
        return False, "libmxnet.so needs %s, which the linker does not find: run provision.yml" % ", ".join(missing)
    return True, ""


def cudnn(answer: Json) -> tuple:
    """Whether cuDNN is the one that was chosen."""
    wanted: Optional[str] = answer["wanted"]["cudnn"]
    if not wanted:
        return None, "cudnn_version is none"
    if answer["cudnn"] != ".".join(wanted.split(".")[:3]):
        return False, "cuDNN is %s, not %s: run provision.yml" % (answer["cudnn"] or "not there", wanted)
    return True, ""


def computes(answer: Json) -> tuple:
    """Whether MXNet has computed on every GPU."""
    if not answer["computes"]:
        return None, "no driver shows a GPU"
    bad = ["GPU %s: %s" % (one, why) for one, why in sorted(answer["computes"].items()) if why]
    return (False, "; ".join(bad)) if bad else (True, "")


CHECKS = (("a driver that CUDA works with", driver), ("no nouveau", nouveau), ("CUDA's compiler", nvcc),
          ("the libraries that MXNet needs", libraries), ("cuDNN", cudnn), ("NVIDIA's deviceQuery", device_query),
          ("MXNet computes on every GPU", computes))
