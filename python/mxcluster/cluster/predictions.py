"""Predict the samples/s of each scheme from a profile, and choose the scheme to use. All is pure.

The predictions assume that

- a worker's step takes the time of its computation while all workers compute, plus the time of its
  exchange while all workers exchange, without any overlap;
- speeds are constant in time, and a worker needs the same time for every sample.

A prediction counts samples. It says nothing about the accuracy after these samples: a stale
gradient, which other workers' updates have overtaken, trains less than a fresh one. So `best`
chooses a scheme with stale gradients only for a large gain.

Source of the row with the fastest workers: m-synchronous SGD, which trains with the m workers that
maximize m s_m, where s_m is the speed of the m-th fastest worker.
"""

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from mxcluster import batch_sizes
from mxcluster.cluster import grouping
from mxcluster.lists import grouped, unique
from mxcluster.model import sweep_schemes
from mxcluster.model.profile import MeasuredProfile, Profile, Worker

# Predictions that differ by less count as equal. The first such scheme in ROWS is the one to use.
CLOSE = 0.05
# The part of a step that a worker loses under balance=deadline: half of its last small batch.
REMAINDER = 1 / 32
FRESH = "-"  # no stale gradients


class Prediction(NamedTuple):
    """The predicted speed of a scheme on the cluster of a profile."""

    title: str
    knobs: Mapping[str, str]  # of train.yml
    samples_per_s: float  # of all workers of the job, while all of them train
    workers: int  # of the job
    # The number of sets of workers that change the weights at different times. The gradients of a
    # single set are never stale.
    sets: int
    stale: str  # the sets that make gradients stale, as text, or FRESH


def predict(profile: Profile) -> List[Prediction]:
    """Return the predictions for the schemes, in the order of ROWS.

    A scheme that does not apply to the cluster is left out. The list is empty for one worker.
    """
    if len(profile.workers) < 2:
        return []
    return [one for one in (row(profile) for row in ROWS) if one]


def best(predictions: Sequence[Prediction], profile: Profile) -> Prediction:
    """Return the prediction of the scheme to use.

    A set of workers after the first costs the price of a group in `grouping`. A scheme with several
    sets must be faster by grouping.LEAST_GAIN than all schemes with one set. Among schemes whose
    remaining speeds differ by less than CLOSE, the first one is the one to use.
    """
    price = grouping.PRICE * limit(profile)
    needed = (1 + grouping.LEAST_GAIN) * max(
        one.samples_per_s for one in predictions if one.sets == 1
    )
    worth = {
        place: one.samples_per_s - price * (one.sets - 1)
        for place, one in enumerate(predictions)
        if one.sets == 1 or one.samples_per_s >= needed
    }
    least = (1 - CLOSE) * max(worth.values())
    return predictions[min(place for place, value in worth.items() if value >= least)]


def limit(profile: Profile) -> float:
    """Return the absolute limit in samples/s: the sum of the speeds of all workers alone."""
    return sum(worker.alone.samples_per_s for worker in profile.workers)


def step_speed(profile: MeasuredProfile, worker: Worker, exchange_s: float) -> float:
    """Return the samples/s of `worker` in steps with an exchange of `exchange_s` seconds."""
    return profile.batch_size / (profile.batch_size / worker.together.samples_per_s + exchange_s)


def step(profile: Profile, workers: Sequence[Worker]) -> float:
    """Return the seconds of a step of `workers` that wait for each other."""
    slowest = min(worker.together.samples_per_s for worker in workers)
    return profile.batch_size / slowest + exchange(workers)


def exchange(workers: Sequence[Worker]) -> float:
    """Return the seconds of the slowest exchange of `workers`."""
    return max(worker.exchange_s for worker in workers)


def together(profile: Profile, workers: Sequence[Worker]) -> float:
    """Return the samples/s of `workers` that wait for each other."""
    return profile.batch_size * len(workers) / step(profile, workers)


def fastest_alone(profile: Profile) -> Worker:
    """Return the fastest worker alone. A job with one worker has the first worker of a host."""
    first = {worker.host: worker for worker in reversed(profile.workers)}
    return max(first.values(), key=lambda worker: worker.alone.samples_per_s)


def fastest_of_several(profile: Profile) -> float:
    """Return the largest predicted samples/s of the schemes with more than one worker."""
    rows = [one for one in predict(profile) if one.workers > 1]
    return max(one.samples_per_s for one in rows)


def _bsp(profile: Profile) -> Optional[Prediction]:
    return _of_sweep("bsp", profile, together(profile, profile.workers))


def _alone(profile: Profile) -> Optional[Prediction]:
    """Return the prediction for a job with one worker, which needs no servers."""
    one = fastest_alone(profile)
    knobs = dict({"kv": "device" if one.gpus else "local"}, **_without(profile, [one.host]))
    return Prediction("the fastest worker alone", knobs, one.alone.samples_per_s, 1, 1, FRESH)


def _fastest(profile: Profile) -> Optional[Prediction]:
    """Return the prediction for dist_sync on the fastest hosts, None if all hosts are faster.

    A host takes part with all its workers or with none.
    """
    by_host = grouped((worker.host, worker) for worker in profile.workers)
    slowest = {
        host: min(worker.together.samples_per_s for worker in workers)
        for host, workers in by_host.items()
    }
    hosts = sorted(by_host, key=lambda host: -slowest[host])
    taken: List[Worker] = []
    options = []
    for count, host in enumerate(hosts, 1):
        taken += by_host[host]
        options.append((together(profile, taken), len(taken), hosts[:count]))
    speed, workers, chosen = max(options, key=lambda option: option[0])
    if not 1 < workers < len(profile.workers):
        return None
    title = "BSP, the %d fastest workers" % workers
    knobs = dict({"kv": "dist_sync"}, **_without(profile, chosen))
    return Prediction(title, knobs, speed, workers, 1, FRESH)


def _without(profile: Profile, chosen: Sequence[str]) -> Dict[str, str]:
    """Return the knob that leaves out the workers of all hosts but the `chosen` ones."""
    left = unique(worker.host for worker in profile.workers if worker.host not in chosen)
    return {"without_workers": ",".join(left)} if left else {}


def _balanced(profile: Profile) -> Optional[Prediction]:
    """Return the prediction for batch sizes in proportion to the speeds, as whole numbers."""
    workers, least = profile.workers, _least(profile)
    total = profile.batch_size * len(workers)
    speeds = [worker.together.samples_per_s for worker in workers]
    sizes = batch_sizes.divide(speeds, total, least, [total] * len(workers))
    seconds = max(size / speed for size, speed in zip(sizes, speeds)) + exchange(workers)
    return _of_sweep(sweep_schemes.BALANCED, profile, total / seconds)


def _deadline(profile: Profile) -> Optional[Prediction]:
    """Return the prediction for steps that end at a deadline, after a sample of each worker."""
    workers = profile.workers
    total = profile.batch_size * len(workers)
    speeds = [worker.together.samples_per_s for worker in workers]
    shortest = max(samples / speed for samples, speed in zip(_least(profile), speeds))
    seconds = max(total / sum(speeds) * (1 + REMAINDER), shortest) + exchange(workers)
    return _of_sweep(sweep_schemes.BY_DEADLINE, profile, total / seconds)


def _least(profile: Profile) -> List[int]:
    """Return the smallest batch of each worker: a sample for each of its GPUs."""
    return [len(worker.gpus or ()) or 1 for worker in profile.workers]


def _grouped(profile: Profile) -> Optional[Prediction]:
    groups = [[profile.workers[one] for one in group] for group in profile.groups]
    speed = sum(together(profile, group) for group in groups)
    speed *= _served(profile, sum(1 / step(profile, group) for group in groups))
    found = _of_sweep(sweep_schemes.GROUPED, profile, speed)
    knobs = dict(found.knobs, grouping="auto", data_allocator="1")
    count = len(groups)
    stale = "by %d groups" % count if count > 1 else FRESH
    return found._replace(knobs=knobs, sets=count, stale=stale)


def _ssp(profile: Profile) -> Optional[Prediction]:
    """Return the prediction for SSP, in which the slowest worker decides in the long run."""
    return _of_pushes("ssp", profile, min(_own_speeds(profile)) * len(profile.workers))


def _asp(profile: Profile) -> Optional[Prediction]:
    """Return the prediction for ASP with shares by speed, so that all workers end together."""
    found = _of_pushes("asp", profile, sum(_own_speeds(profile)))
    return found._replace(knobs=dict(found.knobs, data_allocator="1"))


def _own_speeds(profile: Profile) -> List[float]:
    """Return the samples/s of each worker that waits for no other worker."""
    return [step_speed(profile, worker, worker.exchange_s) for worker in profile.workers]


def _of_pushes(name: str, profile: Profile, speed: float) -> Prediction:
    """Return the prediction for a scheme in which each push changes the weights."""
    count = len(profile.workers)
    found = _of_sweep(name, profile, speed * _served(profile, speed / profile.batch_size))
    return found._replace(sets=count, stale="by %d workers" % count)


def _of_sweep(name: str, profile: Profile, speed: float) -> Prediction:
    """Return the prediction for the scheme `name` of compare.yml with all workers."""
    row = sweep_schemes.of(name)
    return Prediction(row.title, row.knobs, speed, len(profile.workers), 1, FRESH)


def _served(profile: Profile, updates: float) -> float:
    """Return the part of `updates` of the whole model in a second that the servers can do.

    Each server holds a part of the model, so the speeds of the servers add up.
    """
    most = sum(server.updates_per_s for server in profile.servers)
    return min(1.0, most / updates) if profile.servers else 1.0


# The simplest scheme first. Leaving out machines and stale gradients are the last choices.
ROWS: Sequence[Callable[[Profile], Optional[Prediction]]] = (
    _alone,
    _bsp,
    _balanced,
    _deadline,
    _fastest,
    _grouped,
    _ssp,
    _asp,
)
