"""Decide what a reset removes besides the usual parts, and describe what it has done."""

from typing import Dict, List, Mapping, Sequence

from mxcluster.errors import BadInput, did_you_mean, shown
from mxcluster.lists import listed
from mxcluster.model.module_answers import AbsentAnswer

# The parts that a reset removes only if the user asks.
PARTS = ("data", "homes", "cuda", "driver")


def parts(names: Sequence[str]) -> List[str]:
    """Return the parts in the order of PARTS. Raises BadInput for another name."""
    for name in names:
        if name not in PARTS:
            raise BadInput(
                "also=%s is refused: choose from %s%s. Nothing was removed"
                % (shown(name), listed(PARTS), did_you_mean(name, PARTS))
            )
    return [name for name in PARTS if name in names]


def refuse_jobs(running: Mapping[str, Sequence[str]]) -> None:
    """Raise BadInput if a node has a running or prepared job. `running`: {host: ids of jobs}."""
    busy = ["%s on %s" % (listed(list(jobs)), host) for host, jobs in running.items() if jobs]
    if busy:
        raise BadInput(
            "jobs run or are prepared: %s. Wait for their end, or end them with stop.yml. Then run "
            "reset.yml again. Nothing was removed" % "; ".join(busy)
        )


def lines(answers: Mapping[str, Sequence[AbsentAnswer]], check: bool) -> List[str]:
    """Return the lines of the report. Nodes with the same result share their lines.

    Args: `answers` {host: the answers of all roles}; `check` True in check mode.
    """
    hosts: Dict[str, List[str]] = {}
    for host, found in answers.items():
        removed = [path for answer in found for path in answer.removed]
        kept = ["  stays     %s: %s" % row for answer in found for row in answer.kept.items()]
        verb = "to remove" if check else "removed"
        rows = ["  %-9s %s" % (verb, path) for path in removed] or ["  nothing to remove"]
        hosts.setdefault("\n".join(rows + kept), []).append(host)
    return [
        line for text, names in hosts.items() for line in [listed(names) + ":", *text.split("\n")]
    ]
