"""Run the command line of this ansible-playbook again, as a child process with other knobs.

These action plugins (`plugins/action`) run children:

- mxcluster_restart runs the next attempts at a job. A child starts no further attempt.
- mxcluster_sweep runs train.yml for each job of a sweep, and stop.yml. These playbooks replace the
  sweep's playbook on the command line.
- mxcluster_plan runs profile.yml before a job with grouping=auto. This playbook replaces train.yml.

A loop inside one playbook run is impossible, for these reasons:

- A child needs its own `job_id` and knobs, but values of `-e` cannot change during a run.
- If Ansible loses a node during one job, the node stays lost and decides the exit status of the
  run.
- Ansible cannot repeat plays.

Ansible runs a task in a worker process. From ansible-core 2.19 on, workers have no stdio. So the
worker passes the output of the child to Ansible's `Display`. Before 2.19, a worker may have a
terminal. The child then inherits the terminal, and its output keeps colours and the live line.
"""

import codecs
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Callable, Dict, List, Optional

from mxcluster.ansible.edge import CliArguments
from mxcluster.model.sweep import Knobs
from mxcluster.node import processes

Show = Callable[[str, bool], None]

# This environment variable is set in a child only. If the child runs another playbook, the value is
# the file name of the parent's playbook. For the next attempt at a job the value is "1".
CHILD = "MXCLUSTER_ATTEMPT"
TICK = 0.2  # seconds between two checks of the child
INTERRUPTED = 10.0  # seconds that a child has after SIGINT
TERMINATED = 5.0  # seconds that a child and its workers then have after SIGTERM, before SIGKILL
PASSWORDS = ("ask_pass", "become_ask_pass", "ask_vault_pass")


def is_child() -> bool:
    """Return True if another ansible-playbook process has started this process."""
    return CHILD in os.environ


def parent() -> str:
    """Return the file name of the parent's playbook if this child runs another playbook, else "".

    The child has the command line of the parent, so the names of -e are knobs of the parent's
    playbook.
    """
    name = os.environ.get(CHILD, "")
    return name if name.endswith(".yml") else ""


def refusal(program: str, options: CliArguments) -> Optional[str]:
    """Return the reason why this command line cannot run again unattended, else None.

    Args:
        program: `sys.argv[0]`.
        options: the options of ansible-playbook, `context.CLIARGS` (dict).
    """
    if os.path.basename(program) != "ansible-playbook" or not os.path.isfile(program):
        return "this run was not started with ansible-playbook: start the run with ansible-playbook"
    vaults = options.get("vault_ids") or []
    if any(map(options.get, PASSWORDS)) or any(str(name).endswith("prompt") for name in vaults):
        return (
            "Ansible would prompt for a password again: use a password file, or log in with a key"
        )
    if options.get("step"):
        return "with --step Ansible would prompt before each task: leave --step out"
    return None


def end_with_parent() -> None:
    """Make this worker process exit at SIGTERM, which the kernel sends when Ansible ends.

    Otherwise the worker would outlive a killed ansible-playbook and start the next attempt. The
    function also makes SIGINT raise KeyboardInterrupt, which is the default before ansible-core
    2.19.
    """
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _exit)
    processes.set_pdeathsig(os.getppid(), signal.SIGTERM)


def command_line(argv: List[str], extra: Knobs, own: str = "", playbook: str = "") -> List[str]:
    """Return the arguments of a child: the command line `argv`, then the knobs `extra`.

    Args:
        argv: the command line of this process.
        extra: {name: value} of the knobs for the child.
        own: the path of the playbook in `argv`, or "".
        playbook: the name of a file in the same folder, or "". If `own` and `playbook` are given,
            this file replaces `own`.
    """
    if own and playbook:
        place = argv.index(own, 1)
        other = os.path.join(os.path.dirname(own), playbook)
        argv = argv[:place] + [other] + argv[place + 1 :]
    return argv + ["-e", json.dumps(extra, sort_keys=True)]


def run(extra: Knobs, show: Show, own: str = "", playbook: str = "") -> int:
    """Run one child to its end.

    Args:
        extra: the knobs of the child, which override the knobs on the command line.
        show: called with (a piece of the child's output, True if the piece is from stderr).
        own: the path of the playbook in `sys.argv`, see `command_line`.
        playbook: the name of the file that replaces `own`. "" keeps the same playbook.

    Returns:
        The exit status of the child, or 128 plus the number of the signal that ended the child.
    """
    command = [sys.executable] + command_line(sys.argv, extra, own, playbook)
    worker = os.getpid()
    # At SIGINT ansible-playbook ends its workers, at SIGTERM the workers continue. But a command in
    # the background may ignore SIGINT.
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    orphaned = signal.SIGTERM if ignored else signal.SIGINT
    # From ansible-core 2.19 on, a worker leads a session, and Ansible kills its process group.
    apart = os.getsid(0) == worker
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=None if os.isatty(1) else subprocess.PIPE,
        stderr=None if os.isatty(2) else subprocess.PIPE,
        env=dict(os.environ, **{CHILD: os.path.basename(own) or "1"}),
        start_new_session=apart,
        preexec_fn=lambda: processes.set_pdeathsig(worker, orphaned),
    )
    pipes = [(child.stdout, False), (child.stderr, True)]
    streams = {pipe.fileno(): _Stream(pipe.fileno(), error) for pipe, error in pipes if pipe}
    with child:  # closes the pipes
        try:
            _copy(child, streams, show)
        except KeyboardInterrupt:
            if not apart:  # the terminal has sent SIGINT to the child, too
                _ignore_signals()
                _drain(child, streams, INTERRUPTED)
            raise
        finally:
            _end(child, streams)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


class _Stream:
    """A pipe with the output of a child. Args: `is_stderr` False for stdout."""

    def __init__(self, fd: int, is_stderr: bool) -> None:
        self.fd, self.is_stderr = fd, is_stderr
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> Optional[str]:
        """Return the next piece of output, or None at the end of the output."""
        data = os.read(self.fd, 1 << 16)
        return self._decoder.decode(data) if data else None


def _copy(
    child: "subprocess.Popen[bytes]",
    streams: Dict[int, _Stream],
    show: Show,
    until: float = float("inf"),
) -> None:
    """Show the output of the child until the child ends or time.monotonic() reaches `until`."""
    at_end = set()
    while time.monotonic() < until:
        ended = child.poll() is not None  # the child's own children may keep stdout open
        waited = [fd for fd in streams if fd not in at_end]
        ready = select.select(waited, [], [], 0 if ended else TICK)[0]
        for fd in ready:
            piece = streams[fd].read()
            if piece is None:
                at_end.add(fd)
            else:
                show(piece, streams[fd].is_stderr)
        if ended and not ready:
            return


def _drain(child: "subprocess.Popen[bytes]", streams: Dict[int, _Stream], seconds: float) -> None:
    """Wait for the end of the child, at most `seconds`, and drop the child's output.

    The function reads the output, because a full pipe would block the child.
    """
    _copy(child, streams, lambda text, is_stderr: None, time.monotonic() + seconds)


def _end(child: "subprocess.Popen[bytes]", streams: Dict[int, _Stream]) -> None:
    """End the child and its workers if the child still runs."""
    started = processes.identity(child.pid)
    if child.poll() is not None or started is None:
        return
    _ignore_signals()
    child.send_signal(signal.SIGINT)
    _drain(child, streams, INTERRUPTED)
    processes.end_groups(
        [started], TERMINATED, TERMINATED, each_pass=lambda: _drain(child, streams, 0.05)
    )


def _ignore_signals() -> None:
    """Ignore SIGINT and SIGTERM from now on, so that no signal interrupts the end of the child."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)


def _exit(signum: int, frame: object) -> None:
    _ignore_signals()  # Ansible and the kernel may both send SIGTERM
    raise SystemExit(128 + signum)
