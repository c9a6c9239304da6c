"""What can be wrong with processes that live: held by SIGSTOP, never come to their kv-store, or without progress. Pure.

Deaths the supervisor sees by itself. What is looked at here would otherwise keep all the others waiting for ever.
"""
from typing import Any, Dict, List, NamedTuple, Optional

from mxcluster import pulse

Json = Dict[str, Any]

LEAST_FREE = 1 << 20  # bytes: with less, logs and events are torn


class Limits(NamedTuple):
    """Seconds; 0 is no limit."""
    stopped: float
    start: float
    stall: float


class Sight(NamedTuple):
    """What is seen of one process: seconds since its start, for how long it is held (0: it is not), its pulse if it has one,
    for how long that has not changed, and for how long it could have run but had no core."""
    name: str
    role: str
    age: float
    held: float
    pulse: Optional[Json]
    still: float = 0.0
    queued: float = 0.0


class Finding(NamedTuple):
    """What is wrong: the process (None: the node), the kind of the failure, and the reason in words."""
    name: Optional[str]
    kind: str
    reason: str


def limits_of(plan: Json) -> Limits:
    """The limits of a plan."""
    timeouts = plan.get("timeouts") or {}
    return Limits(float((plan.get("heartbeat") or {}).get("timeout") or 0), float(timeouts.get("start") or 0),
                  float(timeouts.get("stall") or 0))


def examine(sights: List[Sight], limits: Limits, distributed: bool) -> Optional[Finding]:
    """The first thing that is wrong, None if all is well. The rendezvous has its own timeout: it has no kv-store."""
    for sight in sights:
        if limits.stopped and sight.held >= limits.stopped:
            return held(sight.name, sight.held)
    for sight in sights:
        phase = sight.pulse["phase"] if sight.pulse else pulse.STARTING
        late = limits.start and sight.age - min(sight.queued, (pulse.PATIENCE - 1) * limits.start) >= limits.start
        if distributed and sight.role != "rendezvous" and late and phase == pulse.STARTING:
            return Finding(sight.name, "start", "has not come to its kv-store within %g s (start_timeout), and all others wait "
                           "for it; a script that prepares for longer needs a longer -e start_timeout" % limits.start)
    stalled = [sight for sight in sights if limits.stall and idle(sight) >= limits.stall]
    if stalled:
        last = min(stalled, key=lambda sight: (sight.role == "worker", sight.pulse["pushes"], sight.pulse["time"]))
        if last.pulse["phase"] == pulse.LEAVING:
            return Finding(last.name, "stall", "is done but has not ended for %g s (stall_timeout): a thread that is no daemon, "
                           "or an exit handler, keeps it" % limits.stall)
        return Finding(last.name, "stall", "has made no progress for %g s (stall_timeout)" % limits.stall)
    return None


def held(name: str, seconds: float) -> Finding:
    """A process that somebody has stopped."""
    return Finding(name, "stopped", "has been held by a signal (SIGSTOP) for %.0f s" % seconds)


def disk(path: str, free: int) -> Finding:
    """A disk that has no room left."""
    return Finding(None, "disk", "the disk of %s is full (No space left on device: %d KB are free); make room there"
                   % (path, free >> 10))


def inodes(path: str) -> Finding:
    """A file system that holds no more files."""
    return Finding(None, "disk", "the file system of %s has no room for more files (No space left on device: no inode is free, "
                   "see df -i); remove files there" % path)


def folder(path: str) -> Finding:
    """A job's folder that somebody has deleted."""
    return Finding(None, "folder", "somebody has deleted %s, the folder of the job that ran: logs and checkpoints in it are lost"
                   % path)


def network(host: str, names: List[str]) -> Finding:
    """Processes of other nodes that acknowledge no data of this node."""
    return Finding(None, "network", "%s gets no answer from %s: the network between the nodes failed"
                   % (host, " and ".join(names)))


def somebody_waits(sights: List[Sight], seconds: float) -> bool:
    """Whether a worker has waited for so long that it is worth knowing where it and the others are; yes if none is here."""
    workers = [sight for sight in sights if sight.role == "worker"]
    return not workers or any(sight.pulse and sight.still > seconds for sight in workers)


def idle(sight: Sight) -> float:
    """Seconds without progress of a process that should make some, else 0."""
    if sight.pulse is None or sight.pulse["phase"] not in (pulse.TRAINING, pulse.UPDATING, pulse.LEAVING):
        return 0.0
    return sight.still
