"""Compute the verdict on a job: success, figures, first failure."""

import time
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from mxcluster import exit_codes, schemes
from mxcluster.errors import some
from mxcluster.job import learning, script_figures, script_shares, stall_cause
from mxcluster.job.stall_cause import of_process
from mxcluster.job.verdict_text import printable
from mxcluster.launchers import LAUNCHERS
from mxcluster.model import failures
from mxcluster.model.answers import NodeResult
from mxcluster.model.events import Done, End, Event
from mxcluster.model.failures import ENGINE_REASON, KINDS, LOSS, NETWORK, OF_REASON, STALL, Failure
from mxcluster.model.plan import WORKER, Plan
from mxcluster.model.status import Expiry, Part, Status
from mxcluster.model.verdict import Verdict

Results = Mapping[str, NodeResult]  # {host: the end of the job on this host}

NOT_DONE = "exited with status 0 before its training was complete: read its log"
_NAMED = 3  # maximum number of node pairs in a verdict, and of processes in each pair


def compute(
    plan: Plan,
    results: Results,
    events: Sequence[Event],
    warnings: Iterable[str] = (),
    files: int = 0,
    engine: Optional[Failure] = None,
) -> Verdict:
    """Return the verdict on the job of `plan`.

    A job is ok under these conditions:

    - every process of the plan exited with 0;
    - every worker wrote its `done` event, because an exit status alone can mislead.
      `mxcluster.training` writes this event at the end of a program or script;
    - the controller reached every node and collected its files;
    - no searched node has a leftover process, file, unit or firewall rule of the job;
    - a program of mxcluster that began with new weights learned (see `learning.judge`).

    Args:
        plan: the plan of the whole job.
        results: {host: the end of the job on this host} of all hosts of the plan.
        events: the merged events of all nodes.
        warnings: further lines for the user.
        files: the number of fetched files that a script wrote.
        engine: the failure that a batch system has caused, such as a cancelled job, or None.
    """
    ends = {
        event.index: event for event in events if isinstance(event, End) and event.role == "worker"
    }
    done = {event.index for event in events if isinstance(event, Done) and event.role == "worker"}
    parts = _parts(results)
    failure = _cause(plan, results, parts, done, engine)
    accuracy = ends[0].accuracy if 0 in ends else None
    if accuracy is None:
        accuracy = script_figures.accuracy(plan, events)
    # A host with a problem always has a failure, from `_not_collected`.
    lines = list(warnings) + _uncollected(results, failure.host if failure else "")
    if failure is None:
        failure, more = _learned(plan, events, accuracy)
        lines += more
    seconds = max([end.seconds or 0.0 for end in ends.values()] or [0.0])
    samples = sum(end.samples or 0 for end in ends.values())
    speed = samples / seconds if seconds and samples else script_figures.speed(plan, events)
    elapsed = seconds if seconds and failure is None else _elapsed(results, engine)
    return Verdict(
        ok=failure is None,
        job=plan.job,
        kv=plan.kv,
        accuracy=accuracy,
        samples_per_s=None if speed is None else round(speed, 1),
        seconds=round(elapsed, 3),
        exit_codes={one.name: _code(parts, one.name) for one in plan.processes},
        first_failure=failure,
        left={host: one.left for host, one in results.items() if one.left is not None},
        warnings=lines + script_figures.dropped(events) + script_shares.unasked(plan, events),
        figures=script_figures.sources(plan, events) or None,
        files=files,
        nodes={host: _state(results[host].status) for host in plan.nodes},
    )


def first_failure(statuses: Iterable[Status]) -> Optional[Failure]:
    """Return the failure that caused the other failures in `statuses`, or None without a failure.

    The end of a job by an agent counts as a failure, too. See `failures.first` for the order.
    """
    found = []
    for status in statuses:
        kind = OF_REASON.get(status.reason or "")
        if kind:
            text = KINDS[kind].words + (_of_lease(status.lease) if kind == failures.LEASE else "")
            found.append(failures.of_agent(status.host, kind, text, status.ended))
        if status.first_failure:
            found.append(status.first_failure)
    return failures.first(found)


def _cause(
    plan: Plan,
    results: Results,
    parts: Mapping[str, Part],
    done: Set[Optional[int]],
    engine: Optional[Failure],
) -> Optional[Failure]:
    """Return the first failure of the job, or None. See `compute` for the arguments."""
    statuses = {host: one.status for host, one in results.items() if one.status}
    failure = first_failure(statuses.values())
    if failure and failure.kind == STALL:
        failure = stall_cause.explain(failure, plan, statuses.values())
    failure = _network(failure, plan, statuses)
    # A false report or a lost node causes failures of processes on other nodes.
    untrue = {host: one.untrue for host, one in results.items() if one.untrue}
    if untrue and _gives_way(failure, LOSS):
        host = min(untrue)
        failure = failures.of_agent(host, failures.AGENT, untrue[host])
    if _gives_way(failure, LOSS):
        failure = _gone(plan, results) or failure
    if engine and _gives_way(failure, ENGINE_REASON):
        failure = engine
    # A lost node is more likely the cause than an echo, which follows from another failure.
    if failure is None or failure.row.is_echo:
        failure = (
            _not_collected(plan, results)
            or _silent(plan, parts, done)
            or _alone(failure)
            # Every node has a status here, because `_not_collected` found no failure.
            or _not_finished(plan, statuses, parts, done)
        )
    return failure or _left_over(results)


def _parts(results: Results) -> Dict[str, Part]:
    """Return {name: state} of all processes that have a state."""
    return {
        part.name: part for one in results.values() if one.status for part in one.status.processes
    }


def _code(parts: Mapping[str, Part], name: str) -> Optional[int]:
    return parts[name].exit_code if name in parts else None


def _gives_way(failure: Optional[Failure], cause: int) -> bool:
    """Return True without a failure, or if `cause` (see `failures.Kind`) may have caused it."""
    return failure is None or failure.row.gives_way >= cause


def _uncollected(results: Results, blamed: str) -> List[str]:
    """Return warnings about the nodes without files, except the host `blamed` of the failure."""
    return [
        "%s: the controller could not collect the files of this node: %s"
        % (host, " ".join(one.problem.split()))
        for host, one in sorted(results.items())
        if one.problem and host != blamed and not one.lost
    ]


def _of_lease(lease: Optional[Expiry]) -> str:
    """Return the measurements of a lease that has run out as text."""
    renewed, gaps = "the node received no renewal", ""
    if lease:
        renewed = "the last renewal was %.0f s ago, and at most %.0f s are allowed" % (
            lease.age,
            lease.limit,
        )
    if lease and lease.gap is not None:
        gaps = "; earlier renewals were up to %.0f s apart" % lease.gap
    return ", %s%s: check whether train.yml was interrupted or lost its connection to the node" % (
        renewed,
        gaps,
    )


def _gone(plan: Plan, results: Results) -> Optional[Failure]:
    """Return the failure of the lost node that has been silent for the longest time, or None.

    If a process of another node ended because heartbeats stopped, the reason also names the
    processes of the silent node.
    """
    silent = {host: one.lost for host, one in results.items() if one.lost}
    if not silent:
        return None
    host = min(silent, key=lambda name: silent[name].since)
    since, status = silent[host].since, results[host].status
    # The head of a batch job reaches the nodes without ssh.
    reason = "%s is gone: it has not answered %ssince %s (%s)" % (
        host,
        "" if LAUNCHERS[plan.launcher].is_batch else "over ssh ",
        time.strftime("%H:%M:%S", time.localtime(since)),
        printable(silent[host].why),
    )
    if status and status.reason == exit_codes.SHUTDOWN:
        reason += ", and its agent got SIGTERM before, as when a node is shut down"
    missed = [process.name for process in plan.processes if process.host == host]
    seconds = plan.heartbeat.timeout
    codes = [part.exit_code for part in _parts(results).values()]
    if missed and exit_codes.PEER_DIED in codes:
        reason += ", and the other nodes have received no heartbeat of its %s for %s s" % (
            " and ".join(missed),
            seconds,
        )
    return failures.of_agent(host, failures.LOST, reason, since)


def _network(
    failure: Optional[Failure], plan: Plan, statuses: Mapping[str, Status]
) -> Optional[Failure]:
    """Return the cause of `failure`: a network fault if a status proves the fault, else `failure`.

    Only an echo, a stall or a failure of the network can have this cause. The field `unanswered` of
    a status lists the processes of other nodes that acknowledged no packet from the status's node.
    A process in this list proves the fault.
    """
    if failure is None or not (failure.row.is_echo or failure.kind in (NETWORK, STALL)):
        return failure
    parts = {part.name: part for part in plan.processes}
    pairs: Dict[Tuple[str, str], List[str]] = {}
    for host, status in sorted(statuses.items()):
        for name in status.unanswered:
            part = parts.get(name)
            if part and part.host != host:
                pairs.setdefault((host, part.host), []).append(
                    "%s at %s:%s" % (name, part.address, part.port)
                )
    if not pairs:
        return failure
    lines = [
        "%s gets no answer from %s (%s)" % (pair + (some(names, _NAMED),))
        for pair, names in pairs.items()
    ]
    host = next(iter(pairs))[0]
    reason = "the network between the nodes failed before any process: " + some(lines, _NAMED)
    return failures.of_agent(host, NETWORK, reason, failure.time)


def _left_over(results: Results) -> Optional[Failure]:
    """Return a failure with the first leftover of the job, or None without a leftover."""
    for host, one in sorted(results.items()):
        if one.left:
            return failures.of_agent(
                host,
                failures.AGENT,
                "a leftover of the finished job is on this node. Log in to the node and remove the "
                "leftover: %s" % one.left[0],
            )
    return None


def _learned(
    plan: Plan, events: Sequence[Event], accuracy: Optional[float]
) -> Tuple[Optional[Failure], List[str]]:
    """Return (failure, warnings) about the learning of a job without another failure.

    A job that learned nothing gets a failure. A script and a job from a saved model get a warning
    instead. A job that was too short for a judgement also gets a warning. The result is (None, [])
    for a job that learned, for an MPI job, and for a measurement. A job that misses its knob
    `expect_accuracy` gets a failure in each case.
    """
    if plan.options.measured or plan.mpi:
        return None, []
    options = plan.options
    found, warning = learning.judge(plan, events, accuracy)
    worker = plan.of_role(WORKER)[0]
    if not found or options.script or options.model_load_epoch:
        missed = learning.missed(options, accuracy)
        failure = missed and of_process(worker, failures.LEARNING, missed, 0, None)
        return failure or None, list(filter(None, [found, warning]))
    cure = "Use another lr than %g, and a smaller lr if the loss oscillates" % options.lr
    if options.lr_scale == "none" and schemes.updates_each_push(schemes.of(plan.kv)):
        cure += ", or leave lr_scale=none out"
    return of_process(worker, failures.LEARNING, "%s. %s" % (found, cure), 0, None), []


def _not_collected(plan: Plan, results: Results) -> Optional[Failure]:
    """Return the failure of the first node whose status or files are missing, or None."""
    for host in plan.nodes:
        if not results[host].status or results[host].problem:
            why = results[host].problem or (
                "the node sent no status.json. Check that the node is reachable"
            )
            text = "the controller could not collect the status of this node: %s" % why
            return failures.of_agent(host, failures.AGENT, text)
    return None


def _silent(plan: Plan, parts: Mapping[str, Part], done: Set[Optional[int]]) -> Optional[Failure]:
    """Return the failure of the first worker that exited with 0 before its `done` event, or None.

    Agents cannot detect this fault, but the fault ends the other processes.

    Args: `done` the indices of the workers that wrote their `done` event.
    """
    for process in plan.processes:
        part = parts.get(process.name)
        gone = part and part.exit_code == 0 and part.ended_by == "self"
        if part and gone and process.role == WORKER and process.index not in done:
            return of_process(process, failures.PROGRAM, NOT_DONE, 0, part.ended_at)
    return None


def _alone(failure: Optional[Failure]) -> Optional[Failure]:
    """Return `failure`, with a cure in the reason if `failure` is an echo of a process.

    An echo is the failure of a process because another process had ended. No node has reported an
    earlier failure, so the network is the likely cause. Any other failure and None stay unchanged.
    """
    if failure is None or failure.kind != failures.PEER:
        return failure
    return failure.replaced(
        reason="%s, and no node reported an earlier failure: check the network between the nodes"
        % failure.reason
    )


def _not_finished(
    plan: Plan, statuses: Mapping[str, Status], parts: Mapping[str, Part], done: Set[Optional[int]]
) -> Optional[Failure]:
    """Return the failure of the first process of `plan` that did not finish its work, or None.

    Agents do not report such a failure.

    Args: `done` the indices of the workers that wrote their `done` event.
    """
    for process in plan.processes:
        code = _code(parts, process.name)
        if code is None:
            kind = failures.AGENT
            reason = "was still running when the controller collected its logs"
        elif code != 0:
            kind, reason = failures.of_code(code), exit_codes.describe(code)
        elif process.role == WORKER and process.index not in done:
            kind, reason = failures.PROGRAM, NOT_DONE
        else:
            continue
        return of_process(process, kind, reason, code, statuses[process.host].ended)
    return None


def _elapsed(results: Results, engine: Optional[Failure]) -> float:
    """Return the seconds from the first start to the last end of all nodes, 0.0 without an end.

    The time of `engine`, see `compute`, is an end too, because agents that a batch system kills
    write none.
    """
    known = [one.status for one in results.values() if one.status]
    ends = [status.ended for status in known if status.ended]
    ends += [engine.time] if engine and engine.time else []
    if not known or not ends:
        return 0.0
    return max(0.0, max(ends) - min(status.started for status in known))


def _state(status: Optional[Status]) -> str:
    return (status.reason or status.state) if status else "missing"
