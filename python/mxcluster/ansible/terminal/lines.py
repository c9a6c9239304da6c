"""Make the lines that a playbook shows on the terminal, without I/O.

A line that stays names fewer hosts if it is too wide for the terminal. A live line cuts the name of
its task.
"""

from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible.utils.display import get_text_width

from mxcluster.ansible.terminal.transfers import Bytes
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


def hosts(names: Sequence[str], most: int = NAMED) -> str:
    """Return the names of hosts as text, such as "node1, node2", with at most `most` names."""
    more = " and %d more" % (len(names) - most) if len(names) > most else ""
    return ", ".join(names[:most]) + more


def fitting(form: Callable[[int], str], columns: int) -> str:
    """Return the line of `form` with the most names of hosts that fits into the columns.

    Args: `form` returns the line with at most the given number of names, 1 to NAMED.
    """
    for most in range(NAMED, 1, -1):
        line = form(most)
        if get_text_width(line) <= columns:
            return line
    return form(1)


def role(name: str, outcomes: Mapping[str, str], seconds: float, columns: int) -> str:
    """Return the line of a role, such as "mxnet  4 nodes: 3 ok, 1 changed (node4)   0:12".

    The line names the changed and failed hosts, unless all hosts have the same outcome.

    Args: `outcomes` {host: one of OUTCOMES}; `seconds` the duration of the role; `columns` of the
    terminal.
    """
    of = grouped((outcome, host) for host, outcome in outcomes.items())
    counted = "%s %s" % (name.ljust(ROLE), several(len(outcomes), "node"))

    def form(most: int) -> str:
        parts = []
        for outcome in OUTCOMES:
            found = of.get(outcome, [])
            if found:
                named = outcome not in ("ok", "skipped") and len(found) < len(outcomes)
                which = " (%s)" % hosts(sorted(found), most) if named else ""
                parts.append("%d %s%s" % (len(found), outcome, which))
        return printable("%s: %s   %s" % (counted, ", ".join(parts), clock(seconds)))

    return fitting(form, columns)


class Step(NamedTuple):
    """A running task."""

    title: str
    """The role or play."""
    task: str
    """The name."""
    hosts: int
    """The number of hosts that have begun the task."""
    left: Sequence[str]
    """The hosts that have not finished the task."""
    throttled: bool
    """True if more hosts may begin the task later."""
    transfer: Optional[Bytes]
    """The running download or copies."""
    seconds: float
    """Since the start of the task."""


def step(running: Step, columns: int) -> str:
    """Return a task's live line, such as "mxnet  Fetch wheels  312 MB  1 of 4 nodes  0:34".

    A terminal with few columns gets a part of the task's name, and no name of a role.
    """
    end = [transferred(running.transfer)] if running.transfer else []
    end += [*progress(running), clock(running.seconds)]
    tail, task = "  " + "  ".join(end), printable(running.task)
    title = printable(running.title).ljust(ROLE) + " " if running.title else ""
    for start in (title + task, task):
        if get_text_width(start + tail) <= columns:
            return start + tail
    while len(task) > 1 and get_text_width(task + tail) > columns:
        task = task[:-2].rstrip() + "…"
    return task + tail


def progress(running: Step) -> List[str]:
    """Return how many hosts have finished a task, [] for one host.

    Examples: ["1 of 4 nodes"], ["3 of 4 nodes, not node2"], ["2 nodes done, 8 at work"].
    """
    done = running.hosts - len(running.left)
    if running.throttled:
        return ["%s done, %d at work" % (several(done, "node"), len(running.left))]
    if running.hosts < 2:
        return []
    late = ", not " + running.left[0] if done and len(running.left) == 1 else ""
    return ["%d of %s%s" % (done, several(running.hosts, "node"), late)]


def transferred(transfer: Bytes) -> str:
    """Return the bytes of a transfer, such as "312 MB", "312 of 861 MB" or "2 copies: ..."."""
    total = " of %s" % megabytes(transfer.total) if transfer.total else ""
    copies = several(transfer.copies, "copy", "copies") + ": " if transfer.copies else ""
    return "%s%s%s MB" % (copies, megabytes(transfer.done), total)


def megabytes(number: int) -> str:
    """Return a number of bytes in MB, such as "0.3" or "1,628"."""
    return "{:,.{digits}f}".format(number / 1e6, digits=1 if number < 1e7 else 0)


def message(names: Sequence[str], lines: Sequence[str], columns: int) -> List[str]:
    """Return the `lines` of a message, with the names of the hosts in front of the first line.

    Args: `names` of the hosts, [] for a message about the whole run; `columns` of the terminal.
    """
    shown = [printable(line) for line in lines]
    if names and shown:
        first = shown[0]
        shown[0] = fitting(lambda most: "%s: %s" % (hosts(names, most), first), columns)
    return shown


def failure(failed: Failed, names: Sequence[str]) -> str:
    """Return the lines of a failure: the hosts, then the message.

    Args: `names` of the hosts.
    """
    found = names[:NAMED]
    more = " and %d more" % (len(names) - NAMED) if len(names) > NAMED else ""
    which = ", ".join("[%s]" % name for name in found) + more
    return "\n  ".join([printable(failed.form.replace("%s", which, 1)), *failed.message])


def closing(playbook: str, failed: Sequence[str], log: str, seconds: float) -> List[str]:
    """Return the last lines of provision.yml.

    Args: `playbook` the name of its file; `failed` the failed and unreachable hosts; `log` the path
    of Ansible's log, "" without one; `seconds` the duration of the run.
    """
    if not failed:
        return ["OK        %s   %s" % (playbook, clock(seconds))]
    named = hosts(sorted(failed))
    return [
        "FAILED    %s on %s   %s" % (playbook, named, clock(seconds)),
        "next      correct the cause, and run %s again: it repeats unfinished steps" % playbook,
        *["log       %s" % log] * bool(log),
    ]
