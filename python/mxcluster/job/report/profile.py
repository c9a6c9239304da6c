"""Make profile.json from a job that measured the cluster, and describe the proposal in text."""

from typing import Dict, Iterator, List, Sequence, Tuple

from mxcluster.cluster import profile as profiles
from mxcluster.errors import BadInput
from mxcluster.job.plan.processes import ranks
from mxcluster.job.report.series import last_of
from mxcluster.job.verdict_text import figure, printable
from mxcluster.lists import aligned, several
from mxcluster.model.events import End, Event, Profile, ServerSpeed
from mxcluster.model.plan import SERVER, WORKER, Plan, Process
from mxcluster.model.profile import CURE, MeasuredProfile, Server, Worker
from mxcluster.model.profile import Profile as ClusterProfile

FILE = "profile.json"
DRIFT = 0.25  # a smaller change of the ratio of two groups' speeds does not count
_MOST_ADVICE = 8  # lines
_MOST_LINES = 32  # workers in the table on the terminal; profile.json has all


def measured(plan: Plan, events: Sequence[Event]) -> MeasuredProfile:
    """Return the measured part of a profile from the `events` of all nodes.

    Raises BadInput if a worker or a server has sent no valid figures.
    """
    servers, workers = plan.of_role(SERVER), plan.of_role(WORKER)
    profile_of = last_of(events, Profile)
    speed_of = last_of(events, ServerSpeed, SERVER)
    silent = [worker.name for worker in workers if worker.index not in profile_of]
    silent += [server.name for server in servers if server.index not in speed_of]
    if silent:
        raise BadInput("the profile lacks the figures of %s: %s" % (", ".join(silent), CURE))
    first = profile_of[0]
    if first.mxnet is None or not first.parameters:
        raise BadInput("the profile lacks the parameters of %s: %s" % (workers[0].name, CURE))
    order = ranks(servers)  # a worker's event lists the servers by rank
    return MeasuredProfile(
        job=plan.job,
        time=first.time,
        mxnet=first.mxnet,
        parameters=first.parameters,
        workers=[
            _worker(process, number, profile_of[index], order)
            for process, index, number in _numbered(workers)
        ],
        servers=[
            Server(host=process.host, number=number, updates_per_s=speed_of[index].updates_per_s)
            for process, index, number in _numbered(servers)
        ],
        network=plan.options.network,
        data=plan.options.data,
        batch_size=plan.options.batch_size,
    )


def _worker(process: Process, number: int, event: Profile, order: Sequence[int]) -> Worker:
    """Return the measurements of the worker `process`.

    Raises BadInput without the times of a server, or without the speed of a GPU.

    Args: `number` of the worker on its host; `order` the rank of each server.
    """
    gpus = process.gpus if event.gpu_speeds else []
    if len(event.servers) != len(order) or len(gpus) != len(event.gpu_speeds or []):
        raise BadInput(
            "the figures of %s on %s are invalid: it must report times of each of %s, and a speed "
            "of each of its GPUs: %s"
            % (process.name, process.host, several(len(order), "server"), CURE)
        )
    return Worker(
        host=process.host,
        number=number,
        alone=event.alone,
        together=event.together,
        exchange_s=event.exchange_s,
        servers=[event.servers[rank] for rank in order],
        gpus=gpus or None,
        gpu_speeds=event.gpu_speeds or None,
    )


def lines(profile: ClusterProfile) -> List[str]:
    """Return the speeds and the proposed groups and shares in `profile` as lines for a terminal.

    First comes a table of the workers: the speeds in samples/s, the time of an exchange in ms, the
    group, and the share in percent. Then come the speeds of GPUs and servers, and the advice.
    """
    group_of = {
        worker: label
        for label, members in zip(profile.labels, profile.groups)
        for worker in members
    }
    rows = [("worker", "alone", "together", "exchange", "group", "share")]
    for index, worker in enumerate(profile.workers):
        begin, end = profile.shares[index]
        rows.append(
            (
                "%s/%d" % (worker.host, worker.number),
                figure(worker.alone.samples_per_s),
                figure(worker.together.samples_per_s),
                "%.1f ms" % (1e3 * worker.exchange_s),
                group_of[index],
                "%.2f %%" % (100 * (end - begin)),
            )
        )
    found = aligned(rows)[: 1 + _MOST_LINES]
    more = len(rows) - len(found)
    if more > 0:
        found.append("and %d more workers, in %s" % (more, FILE))
    found.append(
        "speeds in samples/s of %s on %s, batches of %d; noise %.1f %%"
        % (profile.network, profile.data, profile.batch_size, 100 * profile.noise)
    )
    for host, speeds in sorted(profiles.gpu_speeds(profile).items()):
        if speeds:
            found.append(
                "GPUs of %s alone: %s samples/s"
                % (host, ", ".join("%d: %s" % (gpu, figure(speeds[gpu])) for gpu in sorted(speeds)))
            )
    found += [
        "server %s/%d: %s updates of the model a second"
        % (server.host, server.number, figure(server.updates_per_s))
        for server in profile.servers
    ]
    found += profile.advice[:_MOST_ADVICE]
    more = len(profile.advice) - _MOST_ADVICE
    if more > 0:
        found.append("and %d more lines of advice, in %s" % (more, FILE))
    return [printable(line) for line in found]


def drifted(plan: Plan, events: Sequence[Event]) -> List[str]:
    """Return [a warning] if the speeds of the groups have changed since the profile, else [].

    The speed of a group is the speed of its slowest worker. The function ignores a change by the
    same factor in all groups, because the exchange with the servers slows down all groups.

    Args:
        plan: the plan of a job that has ended.
        events: the events of all nodes.
    """
    used = plan.profile
    if used is None or "groups" not in used.uses or not used.fits:
        return []
    ends = last_of(events, End).items()
    trained = {index: end.samples_per_s for index, end in ends if end.samples_per_s}
    ratios = {}
    for label, members in zip(plan.group_labels, plan.groups):
        speeds = [trained[member] for member in members if member in trained]
        if speeds:
            ratios[label] = min(speeds) / min(used.speeds[member] for member in members)
    if len(ratios) < 2:
        return []
    slow, fast = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    factor = ratios[fast] / ratios[slow]
    if factor <= 1 + max(DRIFT, 3 * used.noise):
        return []
    return [
        "the speeds have changed since the profile %s: the group %s has become slower by the "
        "factor %.2g in comparison with the group %s. Measure the speeds again with profile.yml "
        "-e apply=true" % (used.job, slow, factor, fast)
    ]


def _numbered(processes: List[Process]) -> Iterator[Tuple[Process, int, int]]:
    """Yield (process, index, number), where numbers count each host's processes from 0."""
    seen: Dict[str, int] = {}
    for process in processes:
        number = seen.get(process.host, 0)
        seen[process.host] = number + 1
        yield process, process.index or 0, number
