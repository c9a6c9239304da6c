"""Run the program of notify_command on the controller, with the verdict of a job on its stdin.

No shell reads the words. A program that fails or hangs changes neither the verdict nor the exit
status; a warning names it. The plugin ends a program after TIMEOUT seconds, with its children.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from typing import Sequence

from ansible.utils.display import Display

from mxcluster.ansible import arguments, controller_task
from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.exit_codes import describe
from mxcluster.job.verdict_text import printable
from mxcluster.model.record import Record, field, record
from mxcluster.model.verdict import Verdict

TIMEOUT = 60.0  # seconds until the program must have ended
MOST_OUTPUT = 500  # bytes of the end of the output in a warning


class Arguments(Record, strict=True):
    """The arguments of the task."""

    words: Sequence[str] = field(arguments.texts)
    """The program and its arguments."""
    verdict: Verdict = field(record(Verdict))
    """The content of verdict.json."""


def problem(words: Sequence[str], stdin: bytes, timeout: float = TIMEOUT) -> str:
    """Run a program, and return what went wrong, "" after a success.

    Args: `words` the program and its arguments; `stdin` for the program; `timeout` in seconds.
    """
    # Files, because a program may leave a child that holds a pipe open.
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output:
        source.write(stdin)
        source.seek(0)
        try:
            child = subprocess.Popen(
                list(words),
                stdin=source,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return "did not start: %s" % error
        try:
            status = child.wait(timeout)
            found = describe(status) if status else ""
        except subprocess.TimeoutExpired:
            found = "was killed, because it had not ended after %g s" % timeout
        finally:
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if not found:
            return ""
        output.seek(max(0, os.fstat(output.fileno()).st_size - MOST_OUTPUT))
        lines = output.read().decode(errors="replace").strip().splitlines()
        return found + (": %s" % printable(lines[-1]) if lines else "")


def carry_out(given: Arguments, check: bool) -> controller_task.Result:
    """Run the program. Args: `given` the arguments; `check` True in check mode, which runs none."""
    if not check:
        found = problem(given.words, json.dumps(given.verdict.encode(), sort_keys=True).encode())
        if found:
            Display().warning("notify_command: %s %s" % (printable(given.words[0]), found))
    return controller_task.Result(changed=True)


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_notify`, which Ansible runs on the controller."""
