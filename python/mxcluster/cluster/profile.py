"""Complete a profile of the cluster, read its file, and compare it with the workers of a job.

`mxcluster.model.profile` has the content of a profile. All functions but `of_file` are pure.
"""

import statistics
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from mxcluster import cluster_files
from mxcluster.cluster import grouping, predictions, profile_advice
from mxcluster.errors import some
from mxcluster.file_io import read_json
from mxcluster.model.profile import CURE, MeasuredProfile, Profile, Worker, worker_name

# The minimum noise. The speeds of equal machines differ by this part.
LEAST_NOISE = 0.05


class Fit(NamedTuple):
    """A comparison of a profile with the workers of a job, the result of `fits`."""

    profile: Profile
    # The position in the profile of each worker of the job; None if the profile lacks a worker.
    positions: Optional[List[int]]
    note: str  # missing workers with the cure, or workers outside the job; "" without both


def complete(measured: MeasuredProfile) -> Profile:
    """Return the profile with the `measured` entries and the proposal.

    - noise: the median of the workers' "spread" in "together", at least LEAST_NOISE.
    - groups, labels: `grouping.propose` for the speeds of `step_speeds`.
    - shares: `grouping.shares`, cut from [0, 1] in the order of the workers.
    - placement: `grouping.placement` for `server_speeds`.
    """
    noise = max(
        LEAST_NOISE, statistics.median(worker.together.spread for worker in measured.workers)
    )
    speeds = speeds_of(measured.workers)
    proposal = grouping.propose(step_speeds(measured, measured.workers), noise)
    servers = server_speeds(measured)
    shares = grouping.shares(speeds, proposal.groups)
    found = Profile(
        noise=noise,
        groups=proposal.groups,
        labels=proposal.labels,
        shares=cluster_files.tile(shares, range(len(speeds)), "shares"),
        placement=grouping.placement(measured.parameters, servers) if servers else [],
        advice=[],
        **vars(measured),
    )
    return found.replaced(advice=["groups: " + proposal.reason, *profile_advice.lines(found)])


def of_file(path: str) -> Optional[Profile]:
    """Return the profile in the file `path`, or None if the file does not exist.

    Raises BadInput with the cure if the profile is damaged.
    """
    return read_json(path, Profile.decode, CURE)


def fits(profile: Profile, workers: Sequence[Tuple[str, int]]) -> Fit:
    """Compare a profile with the workers of a job, and return the Fit.

    If the profile lacks the speed of a worker, the Fit has None as `positions`, and the cure in
    `note`. If the profile also has other workers, the job's workers keep their groups.

    Args: `workers` [(host, number)] of the job.
    """
    places = {worker.name: position for position, worker in enumerate(profile.workers)}
    names = [worker_name(*worker) for worker in workers]
    missing = [name for name in names if name not in places]
    if missing:
        note = "%s has no speed of %s: %s" % (title(profile), some(missing), CURE)
        return Fit(profile, None, note)
    in_job = set(names)
    others = [name for name in places if name not in in_job]
    note = (
        "%s also has the speeds of %s, which this job leaves out. The job's workers keep their "
        "groups" % (title(profile), some(others))
    )
    return Fit(profile, [places[name] for name in names], note if others else "")


def groups_of(fit: Fit) -> Tuple[List[List[int]], List[str]]:
    """Return (groups, labels) of the job's workers, from fast to slow.

    A group is a list of indices into the job's workers. The function takes the groups of the
    profile, and removes other workers and empty groups.

    Args: `fit` a Fit whose profile has all workers.
    """
    of = {
        position: group for group, members in enumerate(fit.profile.groups) for position in members
    }
    groups = [[] for _ in fit.profile.groups]  # type: List[List[int]]
    for index, position in enumerate(fit.positions or []):
        groups[of[position]].append(index)
    kept = [(group, label) for group, label in zip(groups, fit.profile.labels) if group]
    return [group for group, _ in kept], [label for _, label in kept]


def reason(fit: Fit) -> str:
    """Return the gain of the groups of the job's workers as text, or the reason for one group.

    Args: `fit` as for `groups_of`.
    """
    workers = [fit.profile.workers[position] for position in fit.positions or []]
    speeds = step_speeds(fit.profile, workers)
    return grouping.reason(list(speeds.values()), groups_of(fit)[0], fit.profile.noise)


def job_speeds(fit: Fit) -> Dict[str, float]:
    """Return {worker's name: samples/s} of the job's workers, while all workers compute."""
    return speeds_of([fit.profile.workers[position] for position in fit.positions or []])


def speeds_of(workers: Sequence[Worker]) -> Dict[str, float]:
    """Return {worker's name: samples/s} of the profile's `workers`, while all workers compute."""
    return {worker.name: worker.together.samples_per_s for worker in workers}


def gpu_speeds(profile: Profile) -> Dict[str, Dict[int, float]]:
    """Return {host: {GPU number: samples/s}}, the speed of each GPU alone.

    The profile has these speeds for workers with several GPUs. Other hosts get an empty dict.
    """
    found: Dict[str, Dict[int, float]] = {}
    for worker in profile.workers:
        speeds = zip(worker.gpus or (), worker.gpu_speeds or ())
        found.setdefault(worker.host, {}).update(speeds)
    return found


def server_speeds(profile: MeasuredProfile) -> Dict[str, float]:
    """Return {server's name: models per second}, in the order of the profile's servers.

    A server's time for one model is the time of the update on the server, plus the median time of
    a worker's push and pull.
    """
    result = {}
    for position, server in enumerate(profile.servers):
        times = [worker.servers[position] for worker in profile.workers]
        moves = [time.push_s + time.pull_s for time in times]
        result[server.name] = 1 / (1 / server.updates_per_s + statistics.median(moves))
    return result


def title(profile: Profile) -> str:
    """Return the job and date of a profile as text for messages."""
    day = time.strftime("%Y-%m-%d", time.gmtime(profile.time))
    return "the profile %s of %s" % (profile.job, day)


def step_speeds(profile: MeasuredProfile, workers: Sequence[Worker]) -> Dict[str, float]:
    """Return {name: samples/s} of `workers` in steps with their exchange, for groups.

    Each worker has the speed of the slowest worker on its host. So the workers of a host are in one
    group. The file `groups` cannot split a host, because this file lists addresses. All workers
    have the median exchange of the profile: an exchange is short, and so its measurement is noisy.
    """
    exchange_s = statistics.median(worker.exchange_s for worker in profile.workers)
    slowest: Dict[str, float] = {}
    for worker in workers:
        speed = predictions.step_speed(profile, worker, exchange_s)
        slowest[worker.host] = min(speed, slowest.get(worker.host, speed))
    return {worker.name: slowest[worker.host] for worker in workers}
