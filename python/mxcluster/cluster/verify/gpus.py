"""Make the verdict's lines about GPUs from the check results of the nodes with GPUs."""

from typing import Any, Callable, Dict, List, Optional, Tuple

from mxcluster.cluster.versions import number

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

    Args: `answers` {host: result of `gpus.check`, with the plan's "cuda" of the host as "wanted"};
    `line` and `skipped` the functions of `verify` with these names.
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
    wanted = answer["wanted"]
    if not answer["driver"]:
        return False, (
            "the PCI bus has %d GPUs, but nvidia-smi shows none: install driver version %s or "
            "newer. If such a driver is installed, restart the node"
            % (wanted["gpus"], wanted["driver"])
        )
    if number(answer["driver"]) < number(wanted["driver"]):
        return False, "driver %s is older than %s, which CUDA %s needs: install a newer driver" % (
            answer["driver"],
            wanted["driver"],
            wanted["version"],
        )
    if answer["listed"] != wanted["gpus"]:
        return False, "nvidia-smi shows %d GPUs, but the PCI bus has %d: see dmesg on this node" % (
            answer["listed"],
            wanted["gpus"],
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


def device_query(answer: Json) -> Result:
    """Check that NVIDIA's program deviceQuery ends with "Result = PASS"."""
    said = answer["device_query"]
    if said is None:
        return (
            None,
            "deviceQuery (package cuda-demo-suite) is not installed, or no driver is loaded",
        )
    if said.endswith("Result = PASS"):
        return True, ""
    return False, "deviceQuery did not pass (%s): see dmesg on this node" % said


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


def cudnn(answer: Json) -> Result:
    """Check that cuDNN has the planned version."""
    wanted: Optional[str] = answer["wanted"]["cudnn"]
    if not wanted:
        return None, "cudnn_version is none"
    if answer["cudnn"] != ".".join(wanted.split(".")[:3]):
        return False, "cuDNN is %s, not %s: run provision.yml" % (
            answer["cudnn"] or "missing",
            wanted,
        )
    return True, ""


def computes(answer: Json) -> Result:
    """Check that MXNet's test computation succeeded on every GPU."""
    if not answer["computes"]:
        return None, "no driver shows a GPU"
    bad = ["GPU %s: %s" % (one, why) for one, why in sorted(answer["computes"].items()) if why]
    return (False, "; ".join(bad)) if bad else (True, "")


CHECKS = (
    ("a driver that CUDA works with", driver),
    ("no nouveau", nouveau),
    ("CUDA's compiler", nvcc),
    ("the libraries that MXNet needs", libraries),
    ("cuDNN", cudnn),
    ("NVIDIA's deviceQuery", device_query),
    ("MXNet computes on every GPU", computes),
)
