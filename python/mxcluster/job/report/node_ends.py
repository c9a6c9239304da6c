"""Make the NodeResult of a node from the results of its tasks. All functions are pure."""

from typing import List, Mapping, Optional

from mxcluster.model import module_answers
from mxcluster.model.answers import BlockingWorker, Lost, NodeResult
from mxcluster.model.record import field, record
from mxcluster.model.shapes import Wrong, optional, words
from mxcluster.model.status import Status

MOST_LINES = 500  # characters of a line, and lines of a node


class TaskResult(module_answers.Answer):
    """The result of a task that waits for a node, or contacts it."""

    status: Optional[Status] = field(optional(record(Status)), default=None)
    lost: Optional[Lost] = field(optional(record(Lost)), default=None)
    uneven: Optional[BlockingWorker] = field(optional(record(BlockingWorker)), default=None)
    packed: Optional[NodeResult] = field(optional(record(NodeResult)), default=None)
    """The collected files, and what is left."""


def of_results(wait: object, contact: object = None) -> NodeResult:
    """Return the NodeResult of a node.

    A result of another type counts as a missing result, and an invalid result as a problem.

    Args:
        wait: the result of the task that waits for the node.
        contact: the result of the task that contacts the node.
    """
    try:
        waited, contacted = (
            TaskResult.decode(result if isinstance(result, dict) else {})
            for result in (wait, contact)
        )
    except Wrong as wrong:
        return NodeResult(problem="the result of the task on this node is invalid: %s" % wrong)
    collected = waited.packed or NodeResult()
    return collected.replaced(
        status=waited.status,
        lost=waited.lost or contacted.lost,
        problem=refusal(waited) or collected.problem,
        uneven=waited.uneven,
    )


def refusal(result: TaskResult) -> Optional[str]:
    """Return the reason why a task failed on a node, or None if the task succeeded.

    If a module crashed, the reason holds the last line of the module's stderr.
    """
    if not (result.failed or result.unreachable):
        return None
    message = result.msg or "Ansible gave no reason"
    if message.startswith("MODULE FAILURE"):
        output = result.module_stderr or result.module_stdout or ""
        lines = output.strip().splitlines() or ["the module printed no error"]
        message = "the module of a task crashed on the node: %s" % lines[-1].strip()
    return words(message)


def complete(ends: Mapping[str, NodeResult]) -> List[str]:
    """Return the hosts of whose files the run folder has all. Args: `ends` {host: its end}."""
    return [host for host, end in ends.items() if end.status and not (end.problem or end.behind)]


def warnings(host: str, end: NodeResult) -> List[str]:
    """Return at most MOST_LINES warnings of each kind about files and processes of `host`."""
    return [
        "%s: %s" % (host, line[:MOST_LINES])
        for lines in (end.behind, end.outside)
        for line in lines[:MOST_LINES]
    ]
