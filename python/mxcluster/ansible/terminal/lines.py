"""Make the lines that a playbook shows on the terminal, without I/O."""

from typing import List, Mapping, NamedTuple, Sequence, Tuple

from mxcluster.job.verdict_text import clock, printable
from mxcluster.lists import grouped, several

NAMED = 8  # maximum number of hosts in a line
ROLE = 16  # columns of a role's name
# The outcomes of a host in a role, from the weakest to the strongest.
OUTCOMES = ("skipped", "ok", "changed", "failed", "unreachable")


class Failed(NamedTuple):
    """A failure of a task on one or more hosts."""

    heading: str
    """The heading of the task, such as "TASK [mxnet : Install MXNet]"."""
    form: str
    """The line of the hosts, such as "fatal: %s: FAILED!"."""
    message: Tuple[str, ...]
    color: str


def hosts(names: Sequence[str]) -> str:
    """Return the names of hosts as text, such as "node1, node2", with at most NAMED names."""
    more = " and %d more" % (len(names) - NAMED) if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def role(name: str, outcomes: Mapping[str, str], seconds: float) -> str:
    """Return the line of a role, such as "mxnet  4 nodes: 3 ok, 1 changed (node4)   0:12".

    The line names the changed and failed hosts, unless all hosts have the same outcome.

    Args: `outcomes` {host: one of OUTCOMES}; `seconds` the duration of the role.
    """
    of = grouped((outcome, host) for host, outcome in outcomes.items())
    parts = []
    for outcome in OUTCOMES:
        found = of.get(outcome, [])
        if found:
            named = outcome not in ("ok", "skipped") and len(found) < len(outcomes)
            which = " (%s)" % hosts(sorted(found)) if named else ""
            parts.append("%d %s%s" % (len(found), outcome, which))
    counted = several(len(outcomes), "node")
    return printable(
        "%s %s: %s   %s" % (name.ljust(ROLE), counted, ", ".join(parts), clock(seconds))
    )


def step(title: str, task: str, done: int, total: int, seconds: float) -> str:
    """Return the live line of a task, such as "mxnet  Install MXNet  1 of 4 nodes  0:34".

    Args: `title` of the role or play; `done` the number of hosts that have finished the task, of
    `total` hosts; `seconds` since the start of the task.
    """
    count = "  %d of %s" % (done, several(total, "node")) if total > 1 else ""
    start = title.ljust(ROLE) + " " if title else ""
    return printable("%s%s%s  %s" % (start, task, count, clock(seconds)))


def message(names: Sequence[str], lines: Sequence[str]) -> List[str]:
    """Return the `lines` of a message, with the names of the hosts in front of the first line.

    Args: `names` of the hosts, [] for a message about the whole run.
    """
    shown = [printable(line) for line in lines]
    if names and shown:
        shown[0] = "%s: %s" % (hosts(names), shown[0])
    return shown


def failure(failed: Failed, names: Sequence[str]) -> str:
    """Return the lines of a failure: the hosts, then the message.

    Args: `names` of the hosts.
    """
    found = names[:NAMED]
    more = " and %d more" % (len(names) - NAMED) if len(names) > NAMED else ""
    which = ", ".join("[%s]" % name for name in found) + more
    return "\n  ".join([printable(failed.form.replace("%s", which, 1)), *failed.message])


def closing(playbook: str, failed: Sequence[str], seconds: float) -> str:
    """Return the last line of provision.yml.

    Args: `playbook` the name of its file; `failed` the failed and unreachable hosts; `seconds` the
    duration of the run.
    """
    if failed:
        return "FAILED    %s on %s   %s" % (playbook, hosts(sorted(failed)), clock(seconds))
    return "OK        %s   %s" % (playbook, clock(seconds))
