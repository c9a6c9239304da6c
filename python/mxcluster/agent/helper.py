"""Start and end the processes beside the agent: reader of lines, meter, keeper of saved files.

A helper does work that must not stop the agent: a regular expression of a user, a driver that
hangs, or a copy of large files. If a helper fails, the job goes on without its work.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Callable, List

from mxcluster.agent.folder import JobFolder
from mxcluster.model.line_request import LineRequest
from mxcluster.model.plan import WORKER, NodePlan
from mxcluster.model.record import Record
from mxcluster.model.saved_request import SavedRequest
from mxcluster.model.usage_request import UsageRequest
from mxcluster.node import processes

LAST = 5.0  # seconds within which a helper ends
COPYING = 120.0  # seconds for the copy of the last saved files, after the end of the workers
DONE = "done"  # the reason of the end of a job that has done its work
NICE = 10  # the meter and the keeper leave the processors to the job


class Helper:
    """A helper, as the agent sees it. The helper dies with the agent.

    Args: `module` of `mxcluster.agent`, which reads the request from stdin; `folder` of the job;
    `in_child` runs between fork and exec; `patience` the seconds that the helper may need to finish
    its work at the end of a job that is done, 0 for a helper without such work. Raises OSError if
    the helper cannot start.
    """

    def __init__(
        self,
        module: str,
        request: Record,
        folder: JobFolder,
        in_child: Callable[[], None],
        patience: float,
    ) -> None:
        environment = {
            name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ
        }
        # A later command finds a process of an agent that was killed by this variable.
        environment["MXCLUSTER_JOB_DIR"] = folder.path
        self._patience = patience
        self._child = subprocess.Popen(
            [sys.executable, "-m", "mxcluster.agent." + module],
            stdin=subprocess.PIPE,
            env=environment,
            cwd=folder.path,
            start_new_session=True,
            preexec_fn=in_child,
        )
        self.identity = processes.identity(self._child.pid) or processes.Identity(0, 0)
        assert self._child.stdin
        with contextlib.suppress(OSError):  # a dead helper has no stdin
            self._child.stdin.write(json.dumps(request.encode()).encode("ascii") + b"\n")
            self._child.stdin.flush()

    def finish(self, reason: str) -> None:
        """End the helper, and wait for its end. A patient helper finishes its work before.

        Args: `reason` of the end of the job on this node, which the helper reads.
        """
        assert self._child.stdin
        with contextlib.suppress(OSError):
            self._child.stdin.write(reason.encode("ascii") + b"\n")
            self._child.stdin.flush()
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        if self._patience:
            # A stop kills an agent that takes longer.
            self._wait(self._patience if reason == DONE else min(self._patience, LAST))
        processes.send(self.identity, signal.SIGKILL)
        self._wait(LAST)

    def _wait(self, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)


def reader(folder: JobFolder, plan: NodePlan, in_child: Callable[[], None]) -> List[Helper]:
    """Return [the started reader of lines] if workers of this node run a script, else [].

    Args: `plan` this node's part of the plan. See Helper for the others.
    """
    if not plan.options.script or not plan.of_role(WORKER):
        return []
    request = LineRequest(
        host=plan.host,
        workers={one.name: one.index or 0 for one in plan.of_role(WORKER)},
        metrics=plan.options.metrics,
    )
    return [Helper("line_reader", request, folder, in_child, patience=LAST)]


def meter(folder: JobFolder, plan: NodePlan, in_child: Callable[[], None]) -> List[Helper]:
    """Return [the started meter of this node's processes]. See `reader` for the arguments."""
    node = plan.nodes.get(plan.host)
    request = UsageRequest(
        host=plan.host,
        interface=node.interface if node else "",
        gpus=sorted({number for one in plan.processes for number in one.gpus}),
    )

    return [Helper("meter", request, folder, _nice(in_child), patience=0)]


def keeper(folder: JobFolder, plan: NodePlan, in_child: Callable[[], None]) -> List[Helper]:
    """Return [the started keeper of saved files] if workers of this node run a script, else [].

    See `reader` for the arguments.
    """
    if not plan.options.script or not plan.of_role(WORKER):
        return []
    request = SavedRequest(
        host=plan.host,
        workers=[one.name for one in plan.of_role(WORKER)],
        most_mb=plan.options.collect_mb,
    )
    return [Helper("saved_files", request, folder, _nice(in_child), patience=COPYING)]


def _nice(in_child: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `in_child`, and leaves the processors to the job."""

    def prepare() -> None:
        in_child()
        os.nice(NICE)

    return prepare


STARTS = (reader, keeper, meter)
