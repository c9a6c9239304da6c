"""Processes of this machine: who they are, what belongs to them, how they end.

A pid alone names nobody for long: numbers are used again. A process is known by its pid **and** the time it started.
"""
import ctypes
import os
import signal
import socket
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
HELD = "T"  # by SIGSTOP
DEAD = "ZXx"  # zombies and what is even further

# Looked up once, here: between fork and exec nothing may be loaded any more.
_libc = ctypes.CDLL(None, use_errno=True)


class Identity(NamedTuple):
    """A process for good: its pid and its start time in clock ticks since boot (proc(5), stat field 22)."""
    pid: int
    start_time: int


class Entry(NamedTuple):
    """One process as the kernel's table has it. `session` and `group` are the pids of those who founded them."""
    pid: int
    parent: int
    group: int
    session: int
    state: str
    start_time: int

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.start_time)


def parse_stat(text: str) -> Entry:
    """An Entry from the text of /proc/<pid>/stat. The name in it may hold blanks and parentheses of its own.

    The state is that of the first thread. If that has ended before other threads, the process still
    runs, keeps its ports, and cannot be reaped: such a process counts as one that sleeps.
    """
    pid = int(text[:text.index(" ")])
    fields = text[text.rindex(")") + 2:].split()
    state = "S" if fields[0] in DEAD and int(fields[17]) > 1 else fields[0]
    return Entry(pid, int(fields[1]), int(fields[2]), int(fields[3]), state, int(fields[19]))


def entry(pid: int) -> Optional[Entry]:
    """The table's line for `pid`, None if there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            return parse_stat(stream.read().decode("latin-1"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def table() -> List[Entry]:
    """All processes of this machine (of this container)."""
    found = (entry(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [line for line in found if line]


def identity(pid: int) -> Optional[Identity]:
    """Who has this pid now, or None. A zombie still has it."""
    line = entry(pid)
    return line.identity if line else None


def alive(who: Identity) -> bool:
    """Whether this very process still runs; zombies do not, and another process with its pid is not it."""
    line = entry(who.pid)
    return line is not None and line.start_time == who.start_time and line.state not in DEAD


def queued(pid: int) -> float:
    """Seconds for which the first thread of a process could have run, but had no core; 0.0 if the kernel does not tell."""
    try:
        with open("/proc/%d/schedstat" % pid) as stream:
            return int(stream.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def is_held(who: Identity) -> bool:
    """Whether this very process is held by SIGSTOP or its like."""
    line = entry(who.pid)
    return line is not None and line.start_time == who.start_time and line.state == HELD


def witness(pid: int) -> Optional[Dict[str, Any]]:
    """What others on this machine need to see whether a process is still there; None if it is not."""
    who = identity(pid)
    return dict(who._asdict(), numbers=_numbers()) if who else None


def lives(known: Optional[Dict[str, Any]]) -> Optional[bool]:
    """Whether the process of a `witness` still runs; None for one on another machine or in another container."""
    if not known or known["numbers"] != _numbers():
        return None
    return alive(Identity(known["pid"], known["start_time"]))


def _numbers() -> str:
    """Within what a pid means the same process: this boot of this machine, and this namespace."""
    with open("/proc/sys/kernel/random/boot_id") as stream:
        return "%s %s" % (stream.read().strip(), os.readlink("/proc/self/ns/pid"))


def send(who: Identity, signum: int) -> bool:
    """Send a signal to this very process. False if it has ended; PermissionError if it is another user's."""
    if not alive(who):
        return False
    try:
        os.kill(who.pid, signum)
    except ProcessLookupError:
        return False
    return True


def family(roots: Iterable[Identity], lines: Optional[List[Entry]] = None) -> List[Identity]:
    """The living processes that belong to `roots`: themselves, what is in a session or process group that one of them
    founded (its orphans too, when the root itself has ended), and the descendants of all these.

    `lines` is the process table, read afresh when not given.
    """
    lines = table() if lines is None else lines
    now = {line.pid: line for line in lines}
    # A root's number that now belongs to a younger process says nothing about the root's family.
    founders = {root.pid: root.start_time for root in roots
                if root.pid not in now or now[root.pid].start_time == root.start_time}
    chosen = {line.pid for line in lines
              if any(line.start_time >= founders.get(number, float("inf"))
                     for number in (line.pid, line.group, line.session))}
    while True:
        children = {line.pid for line in lines if line.parent in chosen} - chosen
        if not children:
            return [line.identity for line in lines if line.pid in chosen and line.state not in DEAD]
        chosen |= children


def command_name(pid: int) -> str:
    """The name of the program of a process, "gone" for one that has ended."""
    try:
        with open("/proc/%d/comm" % pid, errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return "gone"


def variable(pid: int, name: str) -> Optional[str]:
    """A variable of the environment that a process was started with; None if it has none, or is not this user's."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as stream:
            pairs = (pair.partition(b"=") for pair in stream.read().split(b"\0"))
            return next((value.decode(errors="replace") for key, _, value in pairs if key == name.encode()), None)
    except OSError:
        return None


def with_variable(name: str, value: str) -> List[Identity]:
    """The living processes whose environment had name=value when they were started, as far as this user may look.

    Environments are inherited: so a family is found even when all its elders have ended and it has left their session.
    """
    wanted = ("%s=%s" % (name, value)).encode()
    found = []
    for line in table():
        try:
            with open("/proc/%d/environ" % line.pid, "rb") as stream:
                if wanted in stream.read().split(b"\0") and line.state not in DEAD:
                    found.append(line.identity)
        except OSError:  # ended meanwhile, or another user's
            pass
    return found


def end_groups(roots: Iterable[Identity], grace: float = 2.0, patience: float = 3.0, spare: Iterable[Identity] = (),
               each_pass: Callable[[], None] = lambda: None) -> List[Identity]:
    """End the families of `roots` (see `family`): SIGTERM, after `grace` seconds SIGKILL; those in `spare` are left.

    Returns as soon as nobody is left, and at most `patience` seconds after the first SIGKILL: the list of those who
    are still there then (stuck in the kernel, or another user's). `each_pass` is called every 50 ms, to reap children.
    """
    roots, spared = list(roots), set(spare)
    left = []  # type: List[Identity]
    for signum, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, patience)):
        deadline = time.monotonic() + seconds
        told = set()
        while True:
            each_pass()
            left = [who for who in family(roots) if who not in spared]
            if not left:
                return []
            for who in left:
                if who not in told:  # one SIGTERM each: a second one could interrupt a handler that tidies up
                    told.add(who)
                    _send_if_allowed(who, signum)
            if time.monotonic() >= deadline:
                break
            time.sleep(0.05)
    return left


def _send_if_allowed(who: Identity, signum: int) -> None:
    try:
        send(who, signum)
    except PermissionError:  # a set-uid program: it stays in the list of those left
        pass


def set_pdeathsig(parent: int, signum: int = signal.SIGKILL) -> None:
    """In a child, between fork and exec: have the kernel send `signum` when the forking *thread* of `parent` ends.

    prctl(2). If the parent ended before this call, nothing would ever come: then the signal is sent right here.
    """
    _prctl(PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def hide() -> None:
    """Let no other process of the same user open this one's descriptors or memory: as the kernel does after setuid, mostly."""
    _prctl(PR_SET_DUMPABLE, 0)


def set_subreaper() -> None:
    """Become the parent of all orphans among one's descendants, so that none gets out of sight (Linux >= 3.4)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "prctl(%d, %d): %s" % (option, value, os.strerror(number)))


def tell_systemd() -> None:
    """sd_notify(3) with READY=1, if systemd waits for it."""
    place = os.environ.get("NOTIFY_SOCKET")
    if place:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect("\0" + place[1:] if place.startswith("@") else place)
            channel.send(b"READY=1")
