"""Make the live line of a job from the status and progress of all nodes, without I/O.

The answer of a node is the answer to the command `wait`:

    {"status": {...status.json...},
     "progress": {"worker-0": {"start": event, "batch": event, "epoch": event, "end": event}}}

"progress" holds the last event of each kind for each process of the node. If a process has no event
of a kind, the kind is absent.
"""

import time
from typing import Any, Dict, List, Optional, Tuple, cast

from mxcluster.job import batch_sizes
from mxcluster.job.verdict import clock, figure, first_failure, printable
from mxcluster.lists import several

Answers = Dict[str, Optional[Dict[str, Any]]]

ROLES = ("worker", "server", "scheduler")  # the order of the roles in a line; other roles follow
ABSURD = 1e100  # a limit far above any valid figure of a training


def line(answers: Answers, width: Optional[int] = None, now: Optional[float] = None) -> str:
    """Return the live line of a job, with at most `width` characters.

    During the training, the line has these parts:

    - samples/s: the sum of the speeds of the running workers, and the slowest worker;
    - epoch and step: the epoch and step of the worker with the least progress;
    - ETA: the estimated time until the last running worker is done;
    - b: the batch sizes of the running workers, or of all workers if no worker runs. The line
      leaves out b if all sizes are equal;
    - loss: the mean loss of the workers' latest batches;
    - accuracy: the accuracy of worker 0 on held-out samples after its latest epoch.

    Before the training, the line counts the nodes that have answered, the nodes that have finished
    the rendezvous, or the workers that have begun. After a failure, the line names the first
    failure.

    Args: `answers` {host: latest answer of this host, None before the first answer}; `width` None
    for no limit: a longer line loses its least important parts; `now` in unix seconds, for tests.
    `printable` cleans the texts from nodes. The function ignores numbers of at least ABSURD.
    """
    statuses = {
        host: answer["status"]
        for host, answer in answers.items()
        if answer and answer.get("status")
    }
    if len(statuses) < len(answers):
        return fit(
            [
                (
                    0,
                    "starting: %s answered" % _have(len(statuses), len(answers), "node"),
                )
            ],
            width,
        )
    queued = [status for status in statuses.values() if _waits(status)]
    failure = first_failure(statuses.values())
    if queued and not failure:
        return fit([(0, _queue(queued[0], time.time() if now is None else now))], width)
    if failure:
        text = "%s on %s %s; ending the job" % (failure["name"], failure["host"], failure["reason"])
        return fit([(0, text)], width)
    waiting = [
        host
        for host, status in statuses.items()
        if (status.get("meeting") or {}).get("state") == "running"
    ]
    if waiting:
        return fit(
            [
                (
                    0,
                    "rendezvous: %s finished"
                    % _have(len(statuses) - len(waiting), len(statuses), "node"),
                )
            ],
            width,
        )
    # Each host of `statuses` has an answer.
    workers = {
        process["name"]: _numbers(
            cast(Dict[str, Any], answers[host]).get("progress", {}).get(process["name"], {})
        )
        for host, status in sorted(statuses.items())
        for process in status["processes"]
        if process["role"] == "worker"
    }
    if any("batch" in events for events in workers.values()):
        parts = _training(workers)
    elif any("start" in events for events in workers.values()):
        begun = sum("start" in events for events in workers.values())
        parts = [(0, "starting: %s begun" % _have(begun, len(workers), "worker"))]
    else:
        parts = _processes(statuses, time.time() if now is None else now)
    scheme = next((status["kv"] for status in statuses.values() if status.get("kv")), None)
    if scheme:
        parts.insert(0, (5, str(scheme).replace("dist_", "")))
    return fit(parts, width)


def _waits(status: Dict[str, Any]) -> bool:
    """Return True if the job waits in the queue of a batch system, or starts on its nodes."""
    told = status.get("batch")
    return isinstance(told, dict) and told.get("phase") in ("waits", "starts")


def _queue(status: Dict[str, Any], now: float) -> str:
    """Return the line of a job that has no processes yet, with the reason of the batch system."""
    told, since = status["batch"], clock(max(0.0, now - status["started"]))
    if told["phase"] == "starts":
        return "job %s of %s starts on its nodes" % (told.get("id"), told.get("launcher"))
    why = str(told.get("why") or "").strip()
    return "waiting in the queue of %s for %s (job %s%s)" % (
        told.get("launcher"),
        since,
        told.get("id"),
        ": " + why if why else "",
    )


def _have(count: int, total: int, noun: str) -> str:
    """Return the begin of a sentence: "2 of 4 nodes have", "0 of 1 node has"."""
    return "%d of %s %s" % (count, several(total, noun), "has" if total == 1 else "have")


def _numbers(events: Dict[str, Dict[str, Any]]) -> Dict[str, Dict[str, float]]:
    """Return `events` {kind: event}, reduced to the fields that are numbers below ABSURD.

    A loss may also be inf or NaN.
    """
    return {
        kind: {
            name: value
            for name, value in event.items()
            if isinstance(value, (int, float))
            and (abs(value) < ABSURD or name == "loss" and isinstance(value, float))
        }
        for kind, event in events.items()
    }


def _training(workers: Dict[str, Dict[str, Any]]) -> List[Tuple[int, str]]:
    """Return the parts of the live line of a training, [(priority, text)].

    Priority 0 is the most important.

    Args: `workers` {worker name: {kind: last event of this kind}}.
    """
    batches = {name: events["batch"] for name, events in workers.items() if "batch" in events}
    running = {name: batch for name, batch in batches.items() if "end" not in workers[name]}
    behind = min(
        (running or batches).values(),
        key=lambda batch: (batch.get("done") or 0, batch.get("step") or 0),
    )
    parts = []
    if behind.get("epoch") is not None:
        parts.append(
            (0, "epoch %d/%d" % (behind["epoch"] + 1, max(_epochs(workers), behind["epoch"] + 1)))
        )
    if behind.get("step") is not None:
        parts.append((4, "step %d" % behind["step"]))
    speeds = {
        name: batch["samples_per_s"]
        for name, batch in running.items()
        if batch.get("samples_per_s")
    }
    if speeds:
        parts.append((1, "%s samples/s" % figure(sum(speeds.values()))))
        if len(speeds) > 1:
            slowest = min(speeds, key=lambda name: speeds[name])
            parts.append((6, "(slowest %s %s)" % (slowest, figure(speeds[slowest]))))
    sizes = [
        int(batch["batch_size"])
        for _, batch in sorted((running or batches).items(), key=_number)
        if batch.get("batch_size")
    ]
    if len(set(sizes)) > 1:
        parts.append((6, "b %s" % batch_sizes.shown(sizes)))
    losses = [
        batch["loss"] for batch in (running or batches).values() if batch.get("loss") is not None
    ]
    if losses:
        parts.append((7, "loss %.3g" % (sum(losses) / len(losses))))
    first = workers.get("worker-0", {})
    accuracy = first.get("end", first.get("epoch", {})).get("accuracy")
    if accuracy is not None:
        parts.append((3, "accuracy %.3f" % accuracy))
    waiting, ended = len(workers) - len(batches), len(batches) - len(running)
    if waiting:
        parts.append((3, "%s begun" % _have(len(batches), len(workers), "worker")))
    if ended:
        parts.append((3, "%d of %s done" % (ended, several(len(workers), "worker"))))
    remaining = _remaining(workers, running)
    if remaining is not None:
        parts.append((2, "ETA %s" % clock(remaining)))
    return parts


def _number(item: Tuple[str, Any]) -> Tuple[int, str]:
    """Return a sort key for a pair (worker name, value), so that worker-2 precedes worker-10."""
    return len(item[0]), item[0]


def _epochs(workers: Dict[str, Dict[str, Any]]) -> int:
    """Return the number of epochs of the job, or 0 before a worker has reported this number."""
    return max(
        [events["start"].get("epochs") or 0 for events in workers.values() if "start" in events]
        or [0]
    )


def _remaining(
    workers: Dict[str, Dict[str, Any]], running: Dict[str, Dict[str, Any]]
) -> Optional[float]:
    """Return the estimated seconds until the last running worker is done.

    Returns None before any running worker has sent the event "start" and an event "batch" with
    progress ("done", from 0 to 1). The remaining time of a worker is the time between these two
    events, times (1 - done) / done. Both events have times from the clock of the worker's node.

    Args: `workers` {worker name: {kind: last event}}; `running` {worker name: last batch event}.
    """
    seconds = []
    for name, batch in running.items():
        done, start = batch.get("done"), workers[name].get("start")
        if done and done > 1 / ABSURD and start and "time" in batch and "time" in start:
            seconds.append((batch["time"] - start["time"]) * (1 - done) / done)
    return max(seconds) if seconds else None


def _processes(statuses: Dict[str, Dict[str, Any]], now: float) -> List[Tuple[int, str]]:
    """Return the parts of the live line of a job whose workers sent no events, [(priority, text)].

    The first part is (0, the time since the first agent started). Each role of the job adds one
    part with the numbers of running and of all processes, such as (1, "2 of 4 workers").

    Args: `statuses` {host: content of the host's status.json}; `now` in unix seconds.
    """
    parts = [
        (
            0,
            "running %s"
            % clock(max(0.0, now - min(status["started"] for status in statuses.values()))),
        )
    ]
    processes = [process for status in statuses.values() for process in status["processes"]]
    roles = sorted(
        {process["role"] for process in processes},
        key=lambda role: (ROLES.index(role) if role in ROLES else len(ROLES), role),
    )
    for rank, role in enumerate(roles, 1):
        of_role = [process for process in processes if process["role"] == role]
        if of_role:
            alive = sum(process["state"] == "running" for process in of_role)
            parts.append(
                (
                    rank,
                    "%d of %s" % (alive, several(len(of_role), role)),
                )
            )
    return parts


def fit(parts: List[Tuple[int, str]], width: Optional[int]) -> str:
    """Join the strings of `parts` to one line (str) of at most `width` characters.

    The function drops the least important parts first. If the parts of priority 0 are still too
    long, the function cuts the line.

    Args: `parts` [(priority, text)], 0 for the most important; `width` None for no limit.
    """
    while True:
        text = printable("  ".join(text for _, text in parts).replace("  (", " ("))
        if width is None or len(text) <= width:
            return text
        least = max(rank for rank, _ in parts)
        if least == 0:
            return text[: max(0, width - 1)] + "…"
        parts = [part for part in parts if part[0] != least]
