"""Follow the tasks of a playbook, and show one live line and a line for each role.

The class runs a thread, because Ansible calls a callback only when a task begins or a host ends,
and a download takes minutes. The thread draws under the lock of Ansible's display.
"""

import sys
import threading
import time
from typing import Dict, List, Optional, Sequence, Set, Tuple

from ansible.utils.display import Display

from mxcluster.ansible.terminal import lines, transfers
from mxcluster.ansible.terminal.screen import Screen, rewritable

TICK = 1.0  # seconds between two live lines on a terminal
PERIOD = 30.0  # seconds between two lines about the same task on another output
GATHERING = 5.0  # seconds in which the hosts with the same failure share a line
CHECKS = "preflight"  # the title of all roles in a play with the tag always


class View:
    """The view of a playbook on the terminal, in place of Ansible's output.

    Args: `display` of Ansible; `playbook` the name of its file; `shows_roles` True for a line for
    each role and a closing line.
    """

    def __init__(self, display: Display, playbook: str, shows_roles: bool) -> None:
        self.display, self.screen = display, Screen(display)
        self.playbook, self.shows_roles = playbook, shows_roles
        self._began = time.monotonic()
        self._checks = False  # True for a play with the tag always
        self._role, self._role_began = "", self._began
        self._outcomes: Dict[str, str] = {}  # host -> its outcome in the role
        self._step: Optional[Tuple[str, float]] = None  # name and start of the running task
        self._hosts: Set[str] = set()  # hosts that have begun the task
        self._done: Set[str] = set()  # hosts that have finished the task
        self._throttled = False  # True if a task begins on some hosts later
        self._said: Dict[Tuple[str, ...], List[str]] = {}  # lines of a message -> hosts
        self._failures: Dict[lines.Failed, List[str]] = {}  # a failure -> hosts
        self._failed = self._began  # the time of the first failure in _failures
        self._heading = ""  # the latest heading of a failed task on the screen
        self._printed = self._began  # the time of the last live line on a pipe
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def begin_play(self, tags: Sequence[str]) -> None:
        """Remember whether the play checks the nodes. Args: `tags` of the play."""
        self._checks = "always" in tags

    def begin_task(self, role: str, name: str, is_quiet: bool, throttled: bool) -> None:
        """Show a task from now on.

        Args: `role` of the task, "" without one; `name` of the task; `is_quiet` True for a task
        that writes to the terminal itself, so the task has no live line; `throttled` True for a
        task that not all hosts begin at once.
        """
        title = CHECKS if self._checks else role
        with self.display._lock:
            self.settle()
            if title and title != self._role:
                self._end_role()
                self._role, self._role_began = title, time.monotonic()
            self._step = None if is_quiet else (name, time.monotonic())
            self._printed = time.monotonic()
            self._hosts, self._done, self._throttled = set(), set(), throttled

    def begin_host(self, host: str) -> None:
        """Count `host` among the hosts of the task."""
        self._hosts.add(host)

    def end_host(self, host: str, role: str, outcome: str) -> None:
        """Take the outcome of a task on a host.

        A failed host that goes on has been rescued.

        Args: `role` of the task, "" without one; `outcome` one of `lines.OUTCOMES`.
        """
        with self.display._lock:
            self._done.add(host)
            if role:
                rank = lines.OUTCOMES.index
                before = self._outcomes.get(host, "skipped")
                if before == "failed" or rank(outcome) >= rank(before):
                    self._outcomes[host] = outcome

    def pause(self) -> None:
        """Show no live line before the next task."""
        with self.display._lock:
            self._step = None
            self.screen.clear()

    def tell(self, text: Sequence[str], host: str) -> None:
        """Show the message `text` of a task, once for all hosts with the same message.

        Args: `text` lines; `host` "" for a message about the whole run.
        """
        hosts = self._said.setdefault(tuple(text), [])
        if host:
            hosts.append(host)

    def fail(self, failure: lines.Failed, host: str) -> None:
        """Show a failure within GATHERING seconds, once for all hosts that fail so meanwhile."""
        with self.display._lock:
            if not self._failures:
                self._failed = time.monotonic()
            self._failures.setdefault(failure, []).append(host)

    def settle(self) -> None:
        """Show pending messages and failures, and remove the live line."""
        with self.display._lock:
            self._settle_failures()
            for text, hosts in sorted(
                self._said.items(), key=lambda said: min(said[1], default="")
            ):
                for line in lines.message(sorted(hosts), text, self.screen.columns):
                    self.screen.say(line)
            self._said = {}
            self.screen.clear()

    def end(self) -> None:
        """Show the last role, and end the live line."""
        with self.display._lock:
            self.pause()
            self.settle()
            self._end_role()
            self._ended.set()
            self.screen.close()

    def close(self, failed: Sequence[str], log: str, colors: Tuple[str, str]) -> None:
        """Show the closing lines.

        Args: `failed` hosts; `log` the path of Ansible's log, "" without one; `colors` of a success
        and of a failure.
        """
        if self.shows_roles:
            seconds = time.monotonic() - self._began
            closing = lines.closing(self.playbook, failed, log, seconds)
            self.screen.say(closing[0], color=colors[bool(failed)])
            for line in closing[1:]:
                self.screen.say(line)

    def _settle_failures(self) -> None:
        for failure, hosts in self._failures.items():
            if failure.heading != self._heading:
                self._heading = failure.heading
                self.screen.say(failure.heading, is_logged=False)
            self.screen.say(lines.failure(failure, hosts), failure.color, is_logged=False)
        self._failures = {}

    def _end_role(self) -> None:
        seen = {host: outcome for host, outcome in self._outcomes.items() if outcome != "skipped"}
        if self.shows_roles and self._role and seen:
            seconds = time.monotonic() - self._role_began
            self.screen.say(lines.role(self._role, self._outcomes, seconds, self.screen.columns))
        self._role, self._outcomes = "", {}

    def _run(self) -> None:
        while not self._ended.wait(TICK):
            with self.display._lock:
                if not self._ended.is_set():
                    if time.monotonic() - self._failed >= GATHERING:
                        self._settle_failures()
                    if self._step:
                        self._tick(*self._step)

    def _tick(self, name: str, began: float) -> None:
        """Show the live line of the task `name`, which began at `began`."""
        now = time.monotonic()
        is_live = rewritable(sys.stdout)
        if is_live or now - self._printed >= PERIOD:
            self._printed = now
            left, transfer = sorted(self._hosts - self._done), transfers.running()
            total, throttled = len(self._hosts), self._throttled
            step = lines.Step(self._role, name, total, left, throttled, transfer, now - began)
            line = lines.step(step, self.screen.columns - 1)
            (self.screen.draw if is_live else self.screen.say)(line)
