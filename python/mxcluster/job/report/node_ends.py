"""Make the NodeResult of a node from the results of its tasks. All functions are pure."""

from typing import List, Mapping, Optional

from mxcluster.model.answers import NodeResult
from mxcluster.model.shapes import Wrong

MOST_LINES = 500  # characters of a line, and lines of a node


def of_results(wait: object, contact: object = None) -> NodeResult:
    """Return the NodeResult of a node.

    A result of another type counts as a missing result, and an invalid result as a problem.

    Args:
        wait: the result of the task that waits for the node.
        contact: the result of the task that contacts the node.
    """
    waited, contacted = _object(wait), _object(contact)
    collected = _object(waited.get("packed"))
    found = {
        "status": waited.get("status"),
        "lost": waited.get("lost") or contacted.get("lost"),
        "problem": refusal(waited) or collected.get("problem"),
        "uneven": waited.get("uneven"),
    }
    found.update((name, collected.get(name)) for name in ("left", "untrue", "behind", "outside"))
    try:
        return NodeResult.decode({name: one for name, one in found.items() if one is not None})
    except Wrong as wrong:
        return NodeResult(problem="the result of the task on this node is invalid: %s" % wrong)


def refusal(result: Mapping[str, object]) -> Optional[str]:
    """Return the reason why a task failed on a node, or None if the task succeeded.

    If a module crashed, the reason holds the last line of the module's stderr.
    """
    if not (result.get("failed") or result.get("unreachable")):
        return None
    message = str(result.get("msg") or "Ansible gave no reason")
    if message.startswith("MODULE FAILURE"):
        output = str(result.get("module_stderr") or result.get("module_stdout") or "")
        lines = output.strip().splitlines() or ["the module printed no error"]
        message = "the module of a task crashed on the node: %s" % lines[-1].strip()
    return message


def warnings(host: str, end: NodeResult) -> List[str]:
    """Return at most MOST_LINES warnings of each kind about files and processes of `host`."""
    return [
        "%s: %s" % (host, line[:MOST_LINES])
        for lines in (end.behind, end.outside)
        for line in lines[:MOST_LINES]
    ]


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
