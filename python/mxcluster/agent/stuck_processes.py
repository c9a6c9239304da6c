"""Detect processes that a signal suspends, that exceed the start timeout, or that make no progress.

All other processes of the job would wait for such a process for ever. The module also describes
faults of the node, such as a full disk. All functions are pure.
"""

from typing import List, NamedTuple, Optional

from mxcluster import phases
from mxcluster.model import failures
from mxcluster.model.plan import Plan
from mxcluster.model.status import Pulse

LEAST_FREE = 1 << 20  # bytes: with less free space a line of a log or of events.jsonl may be torn


class Sight(NamedTuple):
    """The observed state of one process.

    - `name` and `role`: as in the plan;
    - `age`: seconds since the start of the process;
    - `held`: seconds since a signal suspended the process, 0 for a process that can run;
    - `pulse`: the content of the pulse file, None without a file;
    - `still`: seconds since the last change of `pulse`;
    - `queued`: seconds in which the process was ready to run and had no core;
    - `frozen`: True if the control group of the process is frozen. `held` then counts, too.
    """

    name: str
    role: str
    age: float
    held: float
    pulse: Optional[Pulse]
    still: float = 0.0
    queued: float = 0.0
    frozen: bool = False


class Finding(NamedTuple):
    """A fault of a process or of the node.

    - `name`: the name of the process, None for a fault of the node;
    - `kind`: the kind of failure, see `model.failures`;
    - `reason`: the cause as a string, without the name.
    """

    name: Optional[str]
    kind: str
    reason: str


def examine(sights: List[Sight], plan: Plan) -> Optional[Finding]:
    """Return the first fault of the processes in `sights`, or None without a fault.

    `plan` has the limits of a suspension (the timeout of the heartbeats), of the start, and of a
    stall. 0 means no limit. In a job with a scheduler the function also reports a process that has
    made no kv-store within the start timeout. The rendezvous process is exempt, because it makes no
    kv-store and has its own timeout.
    """
    stopped, limits = plan.heartbeat.timeout, plan.timeouts
    for sight in sights:
        if stopped and sight.held >= stopped:
            return held(sight.name, sight.held, sight.frozen)
    for sight in sights:
        phase = sight.pulse.phase if sight.pulse else phases.STARTING
        late = (
            limits.start
            and sight.age - min(sight.queued, (phases.PATIENCE - 1) * limits.start) >= limits.start
        )
        if plan.root and sight.role != "rendezvous" and late and phase == phases.STARTING:
            return Finding(
                sight.name,
                failures.START,
                "has not made its kv-store within %g s (start_timeout), so all other processes "
                "wait. If the script needs more time before mx.kv.create(), set a longer -e "
                "start_timeout" % limits.start,
            )
    stalled = [
        (sight, sight.pulse)
        for sight in sights
        if sight.pulse and limits.stall and idle(sight) >= limits.stall
    ]
    if stalled:
        last, pulse = min(
            stalled, key=lambda one: (one[0].role == "worker", one[1].pushes, one[1].time)
        )
        if pulse.phase in (phases.ENDING, phases.LEAVING):
            return Finding(
                last.name,
                failures.STALL,
                "is done but has not ended for %g s (stall_timeout), because a non-daemon thread "
                "or an exit handler still runs: end this thread or handler in the script"
                % limits.stall,
            )
        return Finding(
            last.name,
            failures.STALL,
            "has made no progress for %g s (stall_timeout): read the log of this process"
            % limits.stall,
        )
    return None


def held(name: str, seconds: float, frozen: bool = False) -> Finding:
    """Return the Finding for the process `name`, which a signal has suspended for `seconds`.

    `frozen`: True if the control group of the process is frozen instead.
    """
    if frozen:
        return Finding(
            name,
            failures.STOPPED,
            "its container has been frozen for %.0f s: find the program or the user that has "
            "paused the container, as with `docker pause`" % seconds,
        )
    return Finding(
        name,
        failures.STOPPED,
        "has been stopped by a signal (SIGSTOP) for %.0f s: find the program that sent this signal"
        % seconds,
    )


def overtime(plan: Plan, age: float) -> Optional[Finding]:
    """Return the Finding for a job that has run for its `max_time`, None before.

    `age`: seconds since the start of the job on this node.
    """
    limit = plan.options.max_time
    if not limit or age < limit:
        return None
    text = "ended: the job has run for its max_time of %g s. Its results so far stay" % limit
    return Finding(None, failures.TIME, text)


def disk(path: str, free: int) -> Finding:
    """Return the Finding for a full disk.

    `path`: the job folder. `free`: the free space in bytes.
    """
    return Finding(
        None,
        failures.DISK,
        "the disk of %s is full (No space left on device: %d KB are free): make room on this disk"
        % (path, free >> 10),
    )


def inodes(path: str) -> Finding:
    """Return the Finding for a file system without a free inode. `path`: the job folder."""
    return Finding(
        None,
        failures.DISK,
        "the file system of %s has no room for more files (No space left on device: no inode is "
        "free, see df -i): remove files from this file system" % path,
    )


def folder(path: str) -> Finding:
    """Return the Finding for a deleted job folder `path`."""
    return Finding(
        None,
        failures.FOLDER,
        "%s, the folder of the running job, was deleted. The logs and checkpoints of the job on "
        "this node are lost: start the job again" % path,
    )


def network(host: str, names: List[str]) -> Finding:
    """Return the Finding for a network fault.

    `host`: the name of this node. `names`: names of processes on other nodes that acknowledge no
    data from this node.
    """
    return Finding(
        None,
        failures.NETWORK,
        "%s gets no answer from %s, because the network between the nodes failed: check switches, "
        "cables and firewalls" % (host, " and ".join(names)),
    )


def has_waiting_worker(sights: List[Sight], seconds: float) -> bool:
    """Return True if a worker in `sights` has had no progress for `seconds`.

    Without a worker in `sights` the result is True, too. If the result is True, the supervisor
    requests stack traces from the processes.
    """
    workers = [sight for sight in sights if sight.role == "worker"]
    return not workers or any(sight.pulse and sight.still > seconds for sight in workers)


def idle(sight: Sight) -> float:
    """Return the seconds without progress of the process in `sight`.

    Returns 0.0 in a phase in which the process may wait without a limit.
    """
    if sight.pulse is None or sight.pulse.phase not in (
        phases.TRAINING,
        phases.UPDATING,
        phases.ENDING,
        phases.LEAVING,
    ):
        return 0.0
    return sight.still
