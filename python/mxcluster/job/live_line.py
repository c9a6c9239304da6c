"""Make the live line of a job from the states of the job on all nodes, without I/O."""

import time
from typing import List, Mapping, Optional, Tuple

from mxcluster import batch_sizes
from mxcluster.job.verdict import first_failure
from mxcluster.job.verdict_text import clock, figure, printable
from mxcluster.lists import several
from mxcluster.model.answers import JobState
from mxcluster.model.events import Batch, Latest
from mxcluster.model.status import RUNNING, BatchState, Status

Part = Tuple[int, str]  # a part of the line: priority and text, 0 for the most important part
States = Mapping[str, Optional[JobState]]

ROLES = ("worker", "server", "scheduler")  # the order of the roles in a line; other roles follow
LEAST_DONE = 1e-12  # part of the training; before it, no estimate of the remaining time


def line(answers: States, width: Optional[int] = None, now: Optional[float] = None) -> str:
    """Return the live line of a job, with at most `width` characters.

    During the training, the line has these parts:

    - samples/s: the sum of the speeds of the running workers, and the slowest worker;
    - epoch and step: the epoch and step of the worker with the least progress;
    - ETA: the estimated time until the last running worker is done;
    - b: the batch sizes of the running workers, or of all workers if no worker runs. The line
      leaves out b if all sizes are equal;
    - loss: the mean loss of the workers' latest batches;
    - accuracy: the accuracy of worker 0 on held-out samples after its latest epoch. Before, the
      mean training accuracy in the lines of a script's workers.

    Without a figure of a script, the line has the pushes of all workers per second.

    Before the training, the line counts the nodes that have answered, the nodes that have finished
    the rendezvous, or the workers that have begun. After a failure, the line names the first
    failure.

    Args: `answers` {host: latest answer of this host, None before the first answer}; `width` None
    for no limit: a longer line loses its least important parts; `now` in unix seconds, for tests.
    `printable` cleans the texts from nodes.
    """
    moment = time.time() if now is None else now
    statuses = {host: answer.status for host, answer in answers.items() if answer and answer.status}
    if len(statuses) < len(answers):
        count = _have(len(statuses), len(answers), "node")
        return fit([(0, "starting: %s answered" % count)], width)
    failure = first_failure(statuses.values())
    if failure:
        text = "%s on %s %s; ending the job" % (failure.name, failure.host, failure.reason)
        return fit([(0, text)], width)
    for status in statuses.values():
        if status.batch and status.batch.phase in ("waits", "starts"):
            return fit([(0, _queue(status.batch, max(0.0, moment - status.started)))], width)
    met = [
        status.rendezvous is None or status.rendezvous.state != RUNNING
        for status in statuses.values()
    ]
    if not all(met):
        return fit([(0, "rendezvous: %s finished" % _have(sum(met), len(met), "node"))], width)
    workers = _workers(answers)
    begun = sum(latest.start is not None for latest in workers.values())
    if any(latest.batch for latest in workers.values()):
        parts = _training(workers)
    elif begun:
        parts = [(0, "starting: %s begun" % _have(begun, len(workers), "worker"))]
    else:
        parts = _processes(list(statuses.values()), moment)
        rates = [latest.pushes.per_s for latest in workers.values() if latest.pushes]
        parts += _accuracy(workers)
        parts += [(1, "%s pushes/s" % figure(sum(rates)))] if rates else []
    scheme = next((status.kv for status in statuses.values() if status.kv), None)
    if scheme:
        parts.insert(0, (5, scheme.replace("dist_", "")))
    return fit(parts, width)


def _workers(answers: States) -> Mapping[str, Latest]:
    """Return {worker: its latest events} of all workers."""
    return {
        part.name: answer.progress.get(part.name, Latest())
        for _, answer in sorted(answers.items())
        if answer and answer.status
        for part in answer.status.processes
        if part.role == "worker"
    }


def _queue(job: BatchState, seconds: float) -> str:
    """Return the line of a job that has no processes yet, with the reason of the batch system.

    `seconds`: the time since the submission.
    """
    if job.phase == "starts":
        return "job %s of %s starts on its nodes" % (job.id, job.launcher)
    why = ": " + job.why.strip() if job.why.strip() else ""
    return "waiting in the queue of %s for %s (job %s%s)" % (
        job.launcher,
        clock(seconds),
        job.id,
        why,
    )


def _have(count: int, total: int, noun: str) -> str:
    """Return the begin of a sentence: "2 of 4 nodes have", "0 of 1 node has"."""
    return "%d of %s %s" % (count, several(total, noun), "has" if total == 1 else "have")


def _training(workers: Mapping[str, Latest]) -> List[Part]:
    """Return the parts of the live line of a training, [(priority, text)].

    Priority 0 is the most important.

    Args: `workers` {worker name: its latest events}.
    """
    batches = {name: latest.batch for name, latest in workers.items() if latest.batch}
    running = {name: batch for name, batch in batches.items() if not workers[name].end}
    shown = running or batches
    behind = min(
        shown.values(),
        key=lambda one: (one.done or 0, one.epoch or 0, one.step or 0, one.batch or 0),
    )
    waiting, ended = len(workers) - len(batches), len(batches) - len(running)
    # The training program tells its batches, and each of its workers sends events. A worker
    # without a step is then in the first epoch. Of a script, only one worker may send events.
    if waiting and all(one.start and one.start.batches for one in workers.values() if one.batch):
        behind = behind.replaced(epoch=0, step=None, batch=None)
    parts = []
    if behind.epoch is not None:
        epochs = [latest.start.epochs or 0 for latest in workers.values() if latest.start]
        most = max(epochs, default=0)  # a script may not tell the number of its epochs
        of_all = "/%d" % max(most, behind.epoch + 1) if most else ""
        parts.append((0, "epoch %d%s" % (behind.epoch + 1, of_all)))
    if behind.step is not None:
        parts.append((4, "step %d" % behind.step))
    elif behind.batch is not None:
        parts.append((4, "batch %d" % behind.batch))
    speeds = {name: batch.samples_per_s for name, batch in running.items() if batch.samples_per_s}
    if speeds:
        parts.append((1, "%s samples/s" % figure(sum(speeds.values()))))
        if len(speeds) > 1:
            slowest = min(speeds, key=lambda name: speeds[name])
            parts.append((6, "(slowest %s %s)" % (slowest, figure(speeds[slowest]))))
    # worker-2 precedes worker-10.
    in_order = sorted(shown.items(), key=lambda item: (len(item[0]), item[0]))
    sizes = [batch.batch_size for _, batch in in_order if batch.batch_size]
    if len(set(sizes)) > 1:
        parts.append((6, "b %s" % batch_sizes.shown(sizes)))
    if behind.deadline_s:
        parts.append((6, "T %.3g s" % behind.deadline_s))
    losses = [batch.loss for batch in shown.values() if batch.loss is not None]
    if losses:
        parts.append((7, "loss %.3g" % (sum(losses) / len(losses))))
    accuracy = _accuracy(workers)
    parts += accuracy
    trained = [batch.train_accuracy for batch in shown.values() if batch.source]
    known = [accuracy for accuracy in trained if accuracy is not None]
    if known and not accuracy:
        parts.append((3, "training accuracy %.3f" % (sum(known) / len(known))))
    if waiting:
        parts.append((3, "%s begun" % _have(len(batches), len(workers), "worker")))
    if ended:
        parts.append((3, "%d of %s done" % (ended, several(len(workers), "worker"))))
    remaining = _remaining(workers, running)
    if remaining is not None:
        parts.append((2, "ETA %s" % clock(remaining)))
    return parts


def _accuracy(workers: Mapping[str, Latest]) -> List[Part]:
    """Return the part with the accuracy of worker 0 on held-out samples, [] without one."""
    first = workers.get("worker-0", Latest())
    measured = first.end or first.epoch
    if measured is None or measured.accuracy is None:
        return []
    return [(3, "accuracy %.3f" % measured.accuracy)]


def _remaining(workers: Mapping[str, Latest], running: Mapping[str, Batch]) -> Optional[float]:
    """Return the estimated seconds until the last running worker is done.

    Returns None before any running worker has sent the event "start" and an event "batch" with
    progress ("done", from 0 to 1). The remaining time of a worker is the time between these two
    events, times (1 - done) / done. Both events have times from the clock of the worker's node.

    Args: `workers` {worker name: latest events}; `running` {worker name: latest batch}.
    """
    seconds = []
    for name, batch in running.items():
        start = workers[name].start
        if start and batch.done and batch.done >= LEAST_DONE:
            seconds.append((batch.time - start.time) * (1 - batch.done) / batch.done)
    return max(seconds) if seconds else None


def _processes(statuses: List[Status], now: float) -> List[Part]:
    """Return the parts of the live line of a job whose workers sent no events.

    The first part is the time since the first agent started. Each role of the job adds one part
    with the numbers of running and of all processes, such as (1, "2 of 4 workers").
    """
    started = min(status.started for status in statuses)
    parts = [(0, "running %s" % clock(max(0.0, now - started)))]
    processes = [process for status in statuses for process in status.processes]
    roles = sorted(
        {process.role for process in processes},
        key=lambda role: (ROLES.index(role) if role in ROLES else len(ROLES), role),
    )
    for rank, role in enumerate(roles, 1):
        of_role = [process.state == RUNNING for process in processes if process.role == role]
        parts.append((rank, "%d of %s" % (sum(of_role), several(len(of_role), role))))
    return parts


def fit(parts: List[Part], width: Optional[int]) -> str:
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
