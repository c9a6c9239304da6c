"""Find the process that causes a stall, from the progress of all nodes' processes."""

from typing import Iterable, List, Mapping, Optional, Set, Tuple

from mxcluster import phases, schemes
from mxcluster.lists import several
from mxcluster.model.answers import BlockingWorker
from mxcluster.model.failures import STALL, Failure
from mxcluster.model.plan import SERVER, WORKER, Plan, Process
from mxcluster.model.status import Pulse, Status

Pulses = Mapping[str, Pulse]  # {name of a process: its last pulse}


def explain(failure: Failure, plan: Plan, statuses: Iterable[Status]) -> Failure:
    """Return `failure` with the process that causes the stall, and with the reason.

    Args: `failure` the stall that the first node reported; `plan` of the job; `statuses` of the
    nodes, with the last pulses of their processes.

    The first of these processes that exists is the cause:

    1. a server whose optimizer does not return;
    2. a worker whose script has ended while other workers wait for its next push;
    3. a worker that left out a key for which other workers wait;
    4. the worker with the fewest pushes of all workers that wait for each other.
    """
    pulses = {name: found for status in statuses for name, found in status.pulses.items()}
    parts = {part.name: part for part in plan.processes if part.name in pulses}
    blamed = parts.get(failure.name)
    if blamed is None:
        return failure
    # The optimizer of a server in a healthy job returns sooner.
    long = plan.timeouts.stall / 2
    busy = _busy_server(failure, parts, pulses, long)
    if busy:
        return busy
    if pulses[blamed.name].phase in (phases.ENDING, phases.LEAVING):
        return failure
    mates = {name: pulses[name] for name in _waiting_for_each_other(plan, parts, blamed)}
    waiting = [name for name, pulse in mates.items() if pulse.phase == phases.TRAINING]
    merges = schemes.of(plan.kv).merges != schemes.NOBODY
    return (
        _ended_script(failure, parts, mates, waiting)
        or (_missing_key(failure, parts, mates) if merges else None)
        or _slowest(failure, parts, pulses, waiting or [blamed.name])
    )


def _busy_server(
    failure: Failure, parts: Mapping[str, Process], pulses: Pulses, long: float
) -> Optional[Failure]:
    """Return the failure of the server whose optimizer runs the longest, at least `long` s."""
    busy = [
        name
        for name, part in parts.items()
        if part.role == SERVER
        and pulses[name].phase == phases.UPDATING
        and _idle(failure, pulses[name]) >= long
    ]
    if not busy:
        return None
    name = min(busy, key=lambda name: pulses[name].time)
    return _blame(
        failure,
        parts[name],
        "the optimizer of this server has not returned for %.0f s: look for an endless loop or a "
        "wait in the optimizer" % _idle(failure, pulses[name]),
    )


def _ended_script(
    failure: Failure, parts: Mapping[str, Process], pulses: Pulses, waiting: List[str]
) -> Optional[Failure]:
    """Return the failure of a worker whose script has ended before the others, or None.

    Args: `pulses` of the workers that wait for each other; `waiting` those that still train.
    """
    ended = [name for name, pulse in pulses.items() if pulse.phase == phases.FINISHED]
    if not (ended and waiting):
        return None
    first = min(ended, key=lambda name: pulses[name].pushes)
    last = max(waiting, key=lambda name: pulses[name].pushes)
    return _blame(
        failure,
        parts[first],
        "unequal numbers of batches: the script ended after %s, and %s, after %s, waits for the "
        "next push of %s. Give all workers of a group the same number of batches"
        % (_pushes(pulses[first]), last, _pushes(pulses[last]), first),
    )


def _missing_key(
    failure: Failure, parts: Mapping[str, Process], pulses: Pulses
) -> Optional[Failure]:
    """Return the failure of a worker that has not pushed a key for which another waits, or None."""
    found = _unequal_keys(pulses)
    if found is None:
        return None
    name, key, other = found
    return _blame(
        failure,
        parts[name],
        "the script has pushed the key %s %s and other keys up to %s. %s has pushed that key %s, "
        "and waits for the next push of %s. Push the same keys on all workers of a group"
        % (
            key,
            several(_times(pulses[name], key), "time"),
            several(_times(pulses[name], None), "time"),
            other,
            several(_times(pulses[other], key), "time"),
            name,
        ),
    )


def _slowest(
    failure: Failure, parts: Mapping[str, Process], pulses: Pulses, waiting: List[str]
) -> Failure:
    """Return the failure of the worker of `waiting` with the fewest pushes."""
    least = min(waiting, key=lambda name: (pulses[name].pushes, pulses[name].time))
    most = max(pulses[name].pushes for name in waiting)
    text = (
        "this worker has pushed %s, and the workers that wait for its next push have pushed up to "
        "%s" % (several(pulses[least].pushes, "time"), several(most, "time"))
        if pulses[least].pushes < most
        else "no worker has pushed more often than this worker"
    )
    return _blame(
        failure,
        parts[least],
        "no progress for %.0f s (stall_timeout): %s. Read the logs, which show the position of "
        "every process in the code. If the script is only slow, raise stall_timeout"
        % (_idle(failure, pulses[least]), text),
    )


def failure(plan: Plan, host: str, found: BlockingWorker) -> Failure:
    """Return the failure of a worker that stalls a job, because other workers wait for its push.

    Args: `plan` of the job; `host` of the worker.
    """
    part = next(one for one in plan.processes if one.name == found.name).replaced(host=host)
    reason = "other workers wait for the next push of this worker"
    return of_process(part, STALL, reason, None, found.time)


def of_process(
    process: Process, kind: str, reason: str, code: Optional[int], when: Optional[float]
) -> Failure:
    """Return the failure of `process`, an entry of the plan."""
    return Failure(
        host=process.host,
        role=process.role,
        index=process.index,
        name=process.name,
        reason=reason,
        exit_code=code,
        time=when,
        kind=kind,
    )


def uneven(pulses: Pulses, together: List[List[int]]) -> Optional[str]:
    """Return the name of a worker that makes other workers wait forever for its push, or None.

    Args: `pulses` {worker name: pulse} of workers without progress for a while; `together` lists of
    the indices of workers whose pushes the servers add up.

    The function detects two cases in a list of workers. In the first case, a worker has finished,
    and another worker has pushed more often. In the second case, each of two workers has pushed
    some key more often than the other worker.
    """
    for indices in together:
        of_set = {
            name: pulses[name]
            for name in ("worker-%d" % index for index in indices)
            if name in pulses
        }
        done = [name for name, found in of_set.items() if found.phase == phases.FINISHED]
        first = min(done, key=lambda name: (of_set[name].pushes, name)) if done else ""
        if any(
            found.phase == phases.TRAINING and found.pushes > of_set[first].pushes
            for found in of_set.values()
            if first
        ):
            return first
        unequal = _unequal_keys(of_set)
        if unequal:
            return unequal[0]
    return None


def _unequal_keys(pulses: Pulses) -> Optional[Tuple[str, str, str]]:
    """Return (worker, key that this worker left out, worker that waits for this key), or None.

    Each of the two workers has pushed a key more often than the other worker, so the two workers
    wait for each other. The worker with more progress left out a key.
    """
    training = {
        name: found
        for name, found in pulses.items()
        if found.phase == phases.TRAINING and found.keys
    }
    for name in sorted(training, key=lambda name: (-_times(training[name], None), name)):
        for other in sorted(training):
            keys = sorted(_fewer(training[name]) | _fewer(training[other]))
            more = [
                _times(training[name], key) - _times(training[other], key) for key in [None] + keys
            ]
            if min(more) < 0 < max(more) and min(more[1:]) < 0:
                return name, keys[more[1:].index(min(more[1:]))], other
    return None


def _pushes(found: Pulse) -> str:
    """Return the number of pushes in the pulse `found` as text: "1 push", "2 pushes"."""
    return several(found.pushes, "push", "pushes")


def _fewer(found: Pulse) -> Set[str]:
    """Return the keys with fewer pushes than the most pushed key."""
    return set(found.keys.fewer) if found.keys else set()


def _times(found: Pulse, key: Optional[str]) -> int:
    """Return the number of pushes of `key` in the pulse `found`, 0 for a pulse without keys.

    The key None stands for the most pushed key.
    """
    if not found.keys:
        return 0
    return found.keys.most if key is None else found.keys.fewer.get(key, found.keys.most)


def _waiting_for_each_other(plan: Plan, parts: Mapping[str, Process], blamed: Process) -> List[str]:
    """Return the names of the workers that cannot continue without `blamed`, including `blamed`."""
    waits = schemes.of(plan.kv).waits
    if waits == schemes.NOBODY:
        return [blamed.name]
    workers = {name: part.group for name, part in parts.items() if part.role == WORKER}
    return [name for name in workers if waits != schemes.GROUP or workers[name] == blamed.group]


def _idle(failure: Failure, found: Pulse) -> float:
    return max(0.0, (failure.time or 0.0) - found.time)


def _blame(failure: Failure, part: Process, reason: str) -> Failure:
    """Return `failure` with `part` as the failed process, and with `reason`.

    The log lines of `failure` stay only if they belong to `part`.
    """
    found = of_process(part, failure.kind, reason, failure.exit_code, failure.time)
    return found.replaced(log=failure.log if part.name == failure.name else [])
