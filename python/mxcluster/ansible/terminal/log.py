"""Keep all lines that Ansible displays in a file, whether or not the terminal shows them.

Ansible's `Display` writes each line to its logger, without the values that `no_log` censors. This
module sets the logger. A log that the user has set with log_path stays.
"""

import contextlib
import logging
import os
import re
import shutil
import time
from typing import List, Optional, TextIO

from ansible.utils import display as ansible_display
from ansible.utils.display import Display

from mxcluster.ansible.edge import TaskResult
from mxcluster.ansible.left_job import PLANNERS

NAME = "ansible.log"
PREFLIGHT = "mxcluster_preflight"
KEPT = 10  # maximum number of logs of one playbook in a folder


class LogOnly:
    """Ansible's display without its screen: lines and banners go to the log alone.

    Warnings, prompts and everything else go to the display itself.
    """

    def __init__(self, display: Display) -> None:
        self._display = display

    def __getattr__(self, name: str) -> object:
        return getattr(self._display, name)

    def display(self, msg: str, color: Optional[str] = None, **options: bool) -> None:
        """Write a line to the log, with the arguments of Ansible's method."""
        if not options.get("screen_only"):
            self._display.display(msg, color=color, log_only=True)

    def banner(self, msg: str, color: Optional[str] = None, cows: bool = True) -> None:
        """Write the heading of a play or task to the log."""
        self.display("%s %s" % (msg, "*" * max(3, 78 - len(msg))), color=color)


class Log:
    """A file with the output of this ansible-playbook, which its owner alone can read.

    Each line is in the file at once, so the file is complete after Ctrl-C. The file begins in a
    temporary folder, moves to the state folder of the inventory when the preflight knows it, and to
    the run folder of a job when the job runs. A run without a preflight, such as one with
    --start-at-task, has its log in the folder of all states.

    Args: `folder` of the temporary files; `playbook` the name of its file; `states` the folder of
    the state folders.
    """

    def __init__(self, folder: str, playbook: str, states: str) -> None:
        self.path = os.path.join(folder, "ansible-%s.log" % playbook)
        self._states, self.placed = states, False
        self._playbook = playbook.rpartition(".")[0]
        self.state_dir = ""  # the state folder of the inventory, "" if not known
        self._run_dir = ""  # an absolute path, "" if not known
        self._handler = logging.StreamHandler(_opened(self.path))
        self._closed = False
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        if ansible_display.logger is None:
            ansible_display.logger = logging.Logger("mxcluster", logging.DEBUG)  # -vvv is DEBUG
        ansible_display.logger.addHandler(self._handler)
        for text in _earlier_warnings():
            self._handler.handle(logging.makeLogRecord({"msg": text}))

    def learn(self, action: str, result: TaskResult) -> None:
        """Take the folders from a result of a plugin that runs on the controller.

        Args: `action` the name of the plugin.
        """
        if action == PREFLIGHT and result.get("state_dir"):
            self.state_dir = result["state_dir"]
            self._keep(self.state_dir)
        elif action in PLANNERS and result.get("run_dir"):
            self._run_dir = result["run_dir"]

    def move_to_job(self) -> None:
        """Continue the log in the run folder of the job, if there is one: verify.yml has none."""
        path = os.path.join(self._run_dir, NAME)
        if self.path != path and os.path.isdir(self._run_dir):
            with contextlib.suppress(OSError):
                self._move(path)
                self.placed = True

    def close(self) -> None:
        """End the log."""
        if self._closed:
            return
        self._closed = True
        self.move_to_job()
        self._keep(self._states)
        ansible_display.logger.removeHandler(self._handler)
        self._handler.stream.close()

    def _keep(self, folder: str) -> None:
        """Continue the log in `folder`, unless it has its place, and remove this playbook's oldest.

        Two runs that begin in the same second have a log each.
        """
        if self.placed:
            return
        start = "%s-%s" % (self._playbook, time.strftime("%Y%m%d-%H%M%S"))
        form = re.compile(r"%s-\d{8}-\d{6}(-\d+)?\.log" % re.escape(self._playbook))
        with contextlib.suppress(OSError):
            try:
                self._move(os.path.join(folder, start + ".log"), os.O_EXCL)
            except FileExistsError:
                self._move(os.path.join(folder, "%s-%d.log" % (start, os.getpid())))
            self.placed = True
            logs = sorted(entry for entry in os.listdir(folder) if form.fullmatch(entry))
            for entry in logs[:-KEPT]:
                os.remove(os.path.join(folder, entry))

    def _move(self, path: str, flags: int = 0) -> None:
        """Continue the log in the file `path`, after the lines that the file has already.

        Args: `flags` for the opening of `path`, such as os.O_EXCL.

        Raises OSError if the file cannot be written. The log then goes on where it is.
        """
        os.makedirs(os.path.dirname(path), exist_ok=True)
        stream = _opened(path, flags)
        with open(self.path, encoding="utf-8") as lines:
            shutil.copyfileobj(lines, stream)
        stream.flush()
        old = self._handler.stream
        self._handler.setStream(stream)
        old.close()
        os.remove(self.path)
        self.path = path


def _earlier_warnings() -> List[str]:
    """Return what Ansible has warned of before the playbook, such as of an inventory.

    Ansible keeps these texts to show each of them once.
    """
    kinds = ("_deprecations", "_warns", "_errors")
    return [text.strip() for kind in kinds for text in getattr(Display(), kind, ())]


def _opened(path: str, flags: int = 0) -> TextIO:
    """Open a log for its owner alone, at its end. Raises OSError if `path` is a link."""
    flags |= os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")
