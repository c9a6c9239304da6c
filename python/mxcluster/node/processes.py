"""Identify, find and end processes of this node.

The kernel reuses pids. So the pid **and** the start time together identify a process.
"""

import contextlib
import ctypes
import os
import signal
import socket
import time
from typing import Callable, Iterable, List, NamedTuple, Optional, Tuple, Union

from mxcluster.model.status import Part, Process, Witness

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
HELD = "T"  # stopped by a signal such as SIGSTOP
CGROUPS = "/sys/fs/cgroup"
DEAD = "ZXx"  # zombies and processes that the kernel is removing

# Loaded at the import, because a child must not load a library between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True)


class Identity(NamedTuple):
    """A process: its pid and its start time in clock ticks since boot (proc(5), stat field 22)."""

    pid: int
    start_time: int

    @property
    def record(self) -> Process:
        """The process as a status names it."""
        return Process(pid=self.pid, start_time=self.start_time)


def recorded(process: Union[Process, Part]) -> Identity:
    """Return the Identity of a process of a status, Identity(0, 0) if it has not started."""
    return Identity(process.pid or 0, process.start_time or 0)


class Entry(NamedTuple):
    """One process in the kernel's table.

    `session` and `group` are the pids of the leaders of the process's session and process group.
    """

    pid: int
    parent: int
    group: int
    session: int
    state: str
    start_time: int

    @property
    def identity(self) -> Identity:
        """The Identity of the process: pid and start time."""
        return Identity(self.pid, self.start_time)


def parse_stat(text: str) -> Entry:
    """Return an Entry from `text`, the content of /proc/<pid>/stat.

    The program's name in `text` may hold blanks and parentheses.

    /proc shows the state of the first thread. If only the first thread has ended, the process still
    runs and keeps its ports. Such a process counts as sleeping.
    """
    pid = int(text[: text.index(" ")])
    fields = text[text.rindex(")") + 2 :].split()
    state = "S" if fields[0] in DEAD and int(fields[17]) > 1 else fields[0]
    return Entry(pid, int(fields[1]), int(fields[2]), int(fields[3]), state, int(fields[19]))


def entry(pid: int) -> Optional[Entry]:
    """Return the Entry of the process with the pid `pid`, or None if no process has this pid."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            return parse_stat(stream.read().decode("latin-1"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def table() -> List[Entry]:
    """Return an Entry for each process in /proc, which shows this node or this container."""
    found = (entry(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [line for line in found if line]


def identity(pid: int) -> Optional[Identity]:
    """Return the Identity of the process or zombie with the pid `pid`, else None."""
    line = entry(pid)
    return line.identity if line else None


def alive(process: Identity) -> bool:
    """Return True if `process` runs. The result is False for a zombie or a reused pid."""
    line = entry(process.pid)
    return line is not None and line.identity == process and line.state not in DEAD


def queued(pid: int) -> float:
    """Return the seconds that the first thread of the process `pid` has waited for a core.

    Source: /proc/<pid>/schedstat. Returns 0.0 if this file is missing.
    """
    try:
        return int(read(pid, "schedstat").split()[1]) / 1e9
    except (ValueError, IndexError):
        return 0.0


def is_held(process: Identity) -> bool:
    """Return True if a signal such as SIGSTOP has stopped `process`."""
    line = entry(process.pid)
    return line is not None and line.identity == process and line.state == HELD


def is_frozen(pid: int) -> bool:
    """Return True if the control group of the process `pid` is frozen, as by `docker pause`.

    Sources: cgroup.freeze of cgroup v2 (Linux 5.2), freezer.state of cgroup v1. The result is False
    if this process cannot read the file.
    """
    for folder, is_new in control_groups(pid, "freezer"):
        name = "cgroup.freeze" if is_new else "freezer.state"
        with contextlib.suppress(OSError), open(os.path.join(folder, name)) as stream:
            if stream.read().strip() in ("1", "FROZEN"):
                return True
    return False


def control_groups(pid: int, controller: str) -> List[Tuple[str, bool]]:
    """Return (folder, True for cgroup v2) of each control group of the process `pid`.

    Args: `controller` the name of the controller under cgroup v1, such as "cpu".
    """
    found = []
    lines = [line.split(":", 2) for line in os.fsdecode(read(pid, "cgroup")).splitlines()]
    for number, names, path in (line for line in lines if len(line) == 3):
        if number == "0":
            roots = ["", "unified"]
        else:
            roots = [controller] if controller in names.split(",") else []
        for root in roots:
            found.append((os.path.join(CGROUPS, root, path.lstrip("/")), number == "0"))
    return found


def witness(pid: int) -> Optional[Witness]:
    """Return a description of the process `pid` for `lives`, None if no process has this pid."""
    process = identity(pid)
    if process is None:
        return None
    return Witness(pid=process.pid, start_time=process.start_time, numbers=_numbers())


def lives(known: Optional[Witness]) -> Optional[bool]:
    """Return True if the process that `known` describes runs, and False if the process has ended.

    Returns None if `known` is None, or comes from another host, boot or container.
    """
    if not known or known.numbers != _numbers():
        return None
    return alive(recorded(known))


def _numbers() -> str:
    """Return the scope of the pids as text: the boot id of the host and the pid namespace."""
    with open("/proc/sys/kernel/random/boot_id") as stream:
        return "%s %s" % (stream.read().strip(), os.readlink("/proc/self/ns/pid"))


def send(process: Identity, signum: int) -> bool:
    """Send the signal `signum` to `process`. Return False if the process has ended.

    Raises PermissionError for another user's process.
    """
    if not alive(process):
        return False
    try:
        os.kill(process.pid, signum)
    except ProcessLookupError:
        return False
    return True


def family(roots: Iterable[Identity], lines: Optional[List[Entry]] = None) -> List[Identity]:
    """Return the living processes that belong to `roots`: the family of the roots.

    - The roots themselves.
    - The processes in a session or process group of a root, also after the root's end.
    - The descendants of all these processes.

    `lines`: the process table, by default the present table.
    """
    lines = table() if lines is None else lines
    now = {line.pid: line for line in lines}
    # If a younger process has a root's pid now, groups and sessions of this pid are not the root's.
    founders = {
        root.pid: root.start_time
        for root in roots
        if root.pid not in now or now[root.pid].start_time == root.start_time
    }
    chosen = {
        line.pid
        for line in lines
        if any(
            line.start_time >= founders.get(number, float("inf"))
            for number in (line.pid, line.group, line.session)
        )
    }
    while True:
        children = {line.pid for line in lines if line.parent in chosen} - chosen
        if not children:
            return [
                line.identity for line in lines if line.pid in chosen and line.state not in DEAD
            ]
        chosen |= children


def command_name(pid: int) -> str:
    """Return the program name of the process with the pid `pid`, or "gone" after its end."""
    return read(pid, "comm").decode(errors="replace").strip() or "gone"


def variable(pid: int, name: str) -> Optional[str]:
    """Return the value of the variable `name` in the initial environment of the process `pid`.

    Returns None if the process has no such variable, has ended, or belongs to another user.
    """
    pairs = (pair.partition(b"=") for pair in read(pid, "environ").split(b"\0"))
    return next((os.fsdecode(value) for key, _, value in pairs if key == name.encode()), None)


def read(pid: int, name: str) -> bytes:
    """Return the content of /proc/<pid>/<name>, b"" if this user cannot read the file."""
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def uid(pid: int) -> Optional[int]:
    """Return the real uid of the process `pid`, None after its end.

    The owner of /proc/<pid> is root if the process is hidden (see `hide`).
    """
    for line in read(pid, "status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return None


def of_user(user: int) -> List[Identity]:
    """Return the living processes with the real uid `user`."""
    return [line.identity for line in table() if line.state not in DEAD and uid(line.pid) == user]


def with_variable(name: str, value: str) -> List[Identity]:
    """Return the living processes that started with name=value in the environment.

    The result has only processes that this user may inspect. Children inherit the environment, so
    the result also has orphans and processes in other sessions.
    """
    return [
        line.identity
        for line in table()
        if line.state not in DEAD and variable(line.pid, name) == value
    ]


def end_groups(
    roots: Iterable[Identity],
    grace: float = 2.0,
    patience: float = 3.0,
    spare: Iterable[Identity] = (),
    each_pass: Callable[[], None] = lambda: None,
) -> List[Identity]:
    """End the families of `roots` with SIGTERM, and after `grace` seconds with SIGKILL.

    See `family` for families. The function spares the processes `spare`. The function calls
    `each_pass` every 50 ms, so that the caller can reap children.

    The function returns as soon as all processes have ended, and at most `patience` seconds after
    the first SIGKILL. Returns the processes that still live. Another user owns such a process, or
    the process waits in the kernel.
    """
    roots, spared = list(roots), set(spare)
    left: List[Identity] = []
    for signum, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, patience)):
        deadline = time.monotonic() + seconds
        signalled = set()
        while True:
            each_pass()
            left = [process for process in family(roots) if process not in spared]
            if not left:
                return []
            for process in left:
                if process not in signalled:  # a second SIGTERM could interrupt its handler
                    signalled.add(process)
                    with contextlib.suppress(PermissionError):  # a set-uid program
                        send(process, signum)
            if time.monotonic() >= deadline:
                break
            time.sleep(0.05)
    return left


def set_pdeathsig(parent: int, signum: int = signal.SIGKILL) -> None:
    """Make the kernel send `signum` to this child when the forking *thread* of `parent` ends.

    The child calls this function between fork and exec (prctl(2)). `parent`: a pid. If the parent
    has already ended, the kernel sends no signal, so the function itself sends the signal.
    """
    _prctl(PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def hide() -> None:
    """Deny other processes of the same user access to this process's descriptors and memory.

    After setuid the kernel itself denies this access in most cases.
    """
    _prctl(PR_SET_DUMPABLE, 0)


def set_subreaper() -> None:
    """Make this process the parent of its orphaned descendants. Needs Linux 3.4."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "prctl(%d, %d): %s" % (option, value, os.strerror(number)))


def tell_systemd() -> None:
    """Send READY=1 to systemd (sd_notify(3)), if systemd waits for this process."""
    place = os.environ.get("NOTIFY_SOCKET")
    if place:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect("\0" + place[1:] if place.startswith("@") else place)
            channel.send(b"READY=1")
