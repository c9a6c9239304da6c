"""Start and end the processes beside the agent: the reader of lines, and the meter.

A helper does work that must not stop the agent: a regular expression of a user, or a driver that
hangs. If a helper fails, the job goes on without its figures.
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
from mxcluster.model.usage_request import UsageRequest
from mxcluster.node import processes

LAST = 5.0  # seconds within which a helper ends
NICE = 10  # the meter leaves the processors to the job


class Helper:
    """A helper, as the agent sees it. The helper dies with the agent.

    Args: `module` of `mxcluster.agent`, which reads the request from stdin; `folder` of the job;
    `in_child` runs between fork and exec; `patient` True for a helper that has work to finish at
    the end of its stdin. Raises OSError if the helper cannot start.
    """

    def __init__(
        self,
        module: str,
        request: Record,
        folder: JobFolder,
        in_child: Callable[[], None],
        patient: bool,
    ) -> None:
        environment = {
            name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ
        }
        # A later command finds a process of an agent that was killed by this variable.
        environment["MXCLUSTER_JOB_DIR"] = folder.path
        self._patient = patient
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

    def finish(self) -> None:
        """End the helper, and wait for its end. A patient helper finishes its work before."""
        assert self._child.stdin
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        if self._patient:
            self._wait()
        processes.send(self.identity, signal.SIGKILL)
        self._wait()

    def _wait(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(LAST)


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
    return [Helper("line_reader", request, folder, in_child, patient=True)]


def meter(folder: JobFolder, plan: NodePlan, in_child: Callable[[], None]) -> List[Helper]:
    """Return [the started meter of this node's processes]. See `reader` for the arguments."""
    node = plan.nodes.get(plan.host)
    request = UsageRequest(
        host=plan.host,
        interface=node.interface if node else "",
        gpus=sorted({number for one in plan.processes for number in one.gpus}),
    )

    def prepare() -> None:
        in_child()
        os.nice(NICE)

    return [Helper("meter", request, folder, prepare, patient=False)]


STARTS = (reader, meter)
