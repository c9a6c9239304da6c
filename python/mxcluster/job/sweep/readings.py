"""Read the accuracy of the servers' weights over time, and the time to a target accuracy.

All functions are pure. The evaluations of all workers count, in the order of time: each of them is
of the weights that a worker has pulled from the servers, so it tells about the servers and not
about the worker. Times of different nodes are compared as the nodes' clocks give them.
"""

import bisect
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from mxcluster.model.events import Batch, Evaluation, Event, Start
from mxcluster.model.sweep import Reading

Points = List[Tuple[float, float]]  # [(seconds, value)] by rising time

FINE = 0.02  # the largest resolution of a time to the target


class Reached(NamedTuple):
    """The moment at which a job reached the target accuracy."""

    seconds: float  # since the first worker's start
    resolution: float  # the time since the reading before, as a part of `seconds`


def of_job(events: Iterable[Event]) -> List[Reading]:
    """Return the readings of a job by rising time, [] without a start of a worker.

    The samples of all workers at the time of a reading are the sum over the workers, each
    interpolated linearly between its reports.
    """
    own = [one for one in events if one.role == "worker" and one.index is not None]
    begin = min([one.time for one in own if isinstance(one, Start)], default=None)
    if begin is None:
        return []
    trained = [[(begin, 0.0), *points] for points in samples_over_time(own).values()]
    found = []
    for one in sorted(own, key=lambda event: event.time):
        if isinstance(one, Evaluation) and one.accuracy is not None:
            samples = sum(interpolated(points, one.time) for points in trained)
            found.append(
                Reading(
                    seconds=round(max(0.0, one.time - begin), 3),
                    samples=round(samples),
                    accuracy=round(one.accuracy, 5),
                    worker=one.index or 0,
                )
            )
    return found


def samples_over_time(events: Iterable[Event]) -> Dict[int, Points]:
    """Return {worker: [(unix seconds, samples that it has trained)]} of all workers with events."""
    found: Dict[int, Points] = {}
    for event in events:
        if event.role != "worker" or event.index is None:
            continue
        points = found.setdefault(event.index, [])
        if isinstance(event, (Batch, Evaluation)) and event.samples is not None:
            points.append((event.time, float(event.samples)))
    return {index: sorted(points) for index, points in found.items()}


def reached(readings: Sequence[Reading], target: float) -> Optional[Reached]:
    """Return the first of two readings in a row at or above `target`, None without such readings.

    One reading above the target can be noise. Args: `readings` by rising time; `target` 0 to 1.
    """
    before = 0.0
    for one, following in zip(readings, readings[1:]):
        if min(one.accuracy, following.accuracy) >= target:
            distance = one.seconds - before
            return Reached(one.seconds, distance / one.seconds if one.seconds else 1.0)
        before = one.seconds
    return None


def interpolated(points: Points, moment: float) -> float:
    """Return the value at the time `moment`, interpolated linearly between `points`.

    Before the first point, the result is the first value. After the last point, the result is the
    last value. Without a point, the result is 0.0.
    """
    place = bisect.bisect_left(points, (moment, 0.0))
    if not points or place == 0:
        return points[0][1] if points else 0.0
    if place == len(points):
        return points[-1][1]
    (before, low), (after, high) = points[place - 1], points[place]
    return low + (high - low) * ((moment - before) / (after - before or 1.0))
