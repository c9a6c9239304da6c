"""Ask the running processes of a job for the stack traces of their threads.

A process of MXNet writes them to its log at SIGUSR1 (see `mxcluster.training`), also while it waits
in MXNet. So the traces stay in the log. SIGUSR1 ends a process that does not handle this signal, so
such a process gets none.
"""

import os
import re
import signal
import time
from typing import Dict, List, Optional, Sequence, Tuple

from mxcluster.agent import commands
from mxcluster.agent.folder import JobFolder
from mxcluster.agent.log_files import new_lines
from mxcluster.errors import BadInput
from mxcluster.model import answers, protocol
from mxcluster.model.status import RUNNING, Part
from mxcluster.node import processes

PATIENCE = 10.0  # seconds until each process must have written its stack traces
PAUSE = 0.1  # seconds between two looks at the logs; a process writes all traces at once
# The lines of Python's faulthandler. A script may print between them.
TRACE = re.compile(
    r"(Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):"
    r'|  File ".*", line \d+ in .*|  \.\.\.|  <no Python frame>'
)
# The threads of these modules only watch their process, so their stack traces are in the log alone.
WATCHERS = re.compile(r'/mxcluster/training/(death_watch|pulse_file)\.py"')
NO_HANDLER = (
    "the process does not handle SIGUSR1, so it has no stack trace (it still loads, or runs no "
    "Python)"
)
STOPPED = "a signal or a frozen container has stopped the process: let it go on with SIGCONT"
MUTE = "no stack trace within %g s: the process waits in the kernel, or handles SIGUSR1 itself"


def of_job(request: protocol.Stacks) -> answers.Stacks:
    """Return the stack traces of the running processes of a job on this node.

    Raises BadInput for a job of a batch system, whose processes run on other machines.
    """
    folder = JobFolder(request.job_dir)
    known = commands.look(folder)
    if known.batch:
        raise BadInput(
            "the processes of the job %s run on the nodes of the batch system, which stacks.yml "
            "does not reach: log in to a node, and send SIGUSR1 to the process there. The stack "
            "traces are then in its log" % known.job
        )
    silent: Dict[str, str] = {}
    asked: Dict[str, Tuple[str, int]] = {}  # process -> its log, the size of the log before
    for part in known.processes:
        if part.state != RUNNING or request.only and part.name not in request.only:
            continue
        path = folder.file(part.name + ".log")
        size = os.path.getsize(path)
        why = _ask(part)
        if why:
            silent[part.name] = why
        else:
            asked[part.name] = path, size
    stacks = _written(asked)
    silent.update((name, MUTE % PATIENCE) for name in asked if name not in stacks)
    return answers.Stacks(stacks=stacks, silent=silent)


def _ask(part: Part) -> Optional[str]:
    """Send SIGUSR1 to a process. Return the reason why it gets no signal, else None."""
    who = processes.recorded(part)
    if not handles(who.pid, signal.SIGUSR1):
        return NO_HANDLER
    if processes.is_held(who) or processes.is_frozen(who.pid):
        return STOPPED
    try:
        return None if processes.send(who, signal.SIGUSR1) else "the process has just ended"
    except PermissionError:
        return "the process belongs to another user"


def handles(pid: int, signum: int) -> bool:
    """Return True if the process `pid` has a handler for the signal `signum` (proc(5), SigCgt)."""
    for line in processes.read(pid, "status").decode("ascii", "replace").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def _written(asked: Dict[str, Tuple[str, int]]) -> Dict[str, List[str]]:
    """Return {process: its stack traces} as soon as all processes have written them.

    A process without stack traces after PATIENCE seconds is missing. The traces of a process are
    complete when a second look finds the same lines.
    """
    deadline = time.monotonic() + PATIENCE
    before: Dict[str, List[str]] = {}
    found: Dict[str, List[str]] = {}
    while len(found) < len(asked) and time.monotonic() < deadline:
        time.sleep(PAUSE)
        for name, (path, size) in asked.items():
            lines = [line for line in new_lines(path, size, True)[0] if TRACE.fullmatch(line)]
            if lines and lines == before.get(name):
                found[name] = _without_watchers(lines)
            before[name] = lines
    return found


def _without_watchers(lines: Sequence[str]) -> List[str]:
    """Return the stack traces in `lines` without those of threads that only watch the process."""
    traces: List[List[str]] = []
    for line in lines:
        if not traces or line.startswith(("Thread", "Current thread")):
            traces.append([])
        traces[-1].append(line)
    return [
        line
        for trace in traces
        if trace[0].startswith("Current") or not any(map(WATCHERS.search, trace))
        for line in trace
    ]
