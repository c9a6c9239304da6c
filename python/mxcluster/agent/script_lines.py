"""Start and end the reader of the lines of a script's workers (see `line_reader`)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Callable, Optional

from mxcluster.agent.folder import JobFolder
from mxcluster.model.line_request import LineRequest
from mxcluster.model.plan import WORKER, NodePlan
from mxcluster.node import processes

LAST = 5.0  # seconds within which the reader has read the last lines


class Reader:
    """The reader of the lines of the workers on this node, as the agent sees it.

    The reader dies with the agent. Args: `folder` of the job; `plan` this node's part of the plan;
    `in_child` runs between fork and exec. Raises OSError if the reader cannot start.
    """

    def __init__(self, folder: JobFolder, plan: NodePlan, in_child: Callable[[], None]) -> None:
        request = LineRequest(
            host=plan.host,
            workers={one.name: one.index or 0 for one in plan.of_role(WORKER)},
            metrics=plan.options.metrics,
        )
        environment = {
            name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ
        }
        # A later command finds a process of an agent that was killed by this variable.
        environment["MXCLUSTER_JOB_DIR"] = folder.path
        self._child = subprocess.Popen(
            [sys.executable, "-m", "mxcluster.agent.line_reader"],
            stdin=subprocess.PIPE,
            env=environment,
            cwd=folder.path,
            start_new_session=True,
            preexec_fn=in_child,
        )
        self.identity = processes.identity(self._child.pid) or processes.Identity(0, 0)
        self._tell(json.dumps(request.encode()).encode("ascii") + b"\n")

    def finish(self) -> None:
        """Let the reader read the last lines, and wait for its end."""
        self._tell(None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(LAST)
        processes.send(self.identity, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(LAST)

    def _tell(self, data: Optional[bytes]) -> None:
        """Write `data` to the reader's stdin, None for the end. A dead reader has no stdin."""
        assert self._child.stdin
        with contextlib.suppress(OSError):
            if data is None:
                self._child.stdin.close()
            else:
                self._child.stdin.write(data)
                self._child.stdin.flush()


def start(folder: JobFolder, plan: NodePlan, in_child: Callable[[], None]) -> Optional[Reader]:
    """Start the reader if workers of this node run a script. See Reader for the arguments."""
    has_lines = plan.options.script and plan.of_role(WORKER)
    return Reader(folder, plan, in_child) if has_lines else None
