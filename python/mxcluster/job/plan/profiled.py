"""Use a profile of the cluster in a plan: groups, shares, speeds and placement of parameters."""

from collections import Counter
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from mxcluster import schemes, work_load
from mxcluster.cluster import grouping, profile
from mxcluster.cluster_files import Share, cut
from mxcluster.datasets import training_samples
from mxcluster.environment import BOUND
from mxcluster.errors import refuse
from mxcluster.lists import listed
from mxcluster.model.job_knobs import Options
from mxcluster.model.plan import UsedProfile
from mxcluster.model.profile import CURE, Profile, worker_name

FILE, LABELS, PROFILE, NOBODY = "file", "labels", "profile", ""  # the origin of a plan's groups


def numbered(lines: Sequence[str]) -> List[Tuple[str, int]]:
    """Return [(host, number)] of the hosts in `lines`, with repetitions of a host counted from 0.

    Example: ["a", "b", "a"] gives [("a", 0), ("b", 0), ("a", 1)].
    """
    counted, result = Counter(), []  # type: Dict[str, int], List[Tuple[str, int]]
    for host in lines:
        result.append((host, counted[host]))
        counted[host] += 1
    return result


def fit(found: Optional[Profile], workers: Sequence[str]) -> Optional[profile.Fit]:
    """Return the Fit of the profile `found` to the job's workers; None without a profile.

    Args: `workers` the host of each worker.
    """
    return None if found is None else profile.fits(found, numbered(workers))


def complete(fitted: Optional[profile.Fit]) -> Optional[profile.Fit]:
    """Return `fitted` if the profile has the speeds of all workers of the job, else None."""
    return fitted if fitted and fitted.positions is not None else None


def gpu_speeds(
    fitted: Optional[profile.Fit],
    gpu_lists: Sequence[Sequence[int]],
    workers: Sequence[str],
    batch: int,
) -> Dict[str, Dict[int, float]]:
    """Return {host: {GPU number: samples/s}} of hosts with unequal GPUs, from a profile.

    A host has unequal GPUs if the speeds of one worker's GPUs differ by more than the noise of the
    profile. The result leaves out a host if a GPU would get no sample of a batch of `batch`
    samples.

    Args: `fitted` of `complete`; `gpu_lists` the GPU numbers of each worker; `workers` the host of
    each worker.
    """
    if fitted is None:
        return {}
    found = profile.gpu_speeds(fitted.profile)
    different, starving = set(), set()
    for host, numbers in zip(workers, gpu_lists):
        speeds = [found[host][gpu] for gpu in numbers if gpu in found[host]]
        if len(speeds) < 2 or len(speeds) < len(numbers):
            continue
        if max(speeds) > (1 + fitted.profile.noise) * min(speeds):
            different.add(host)
        if 0 in work_load.split(batch, speeds):
            starving.add(host)
    return {host: found[host] for host in different - starving}


def placement(
    found: Optional[Profile], options: Options, servers: Sequence[str], groups: int
) -> Tuple[List[int], str]:
    """Return ([index of the server of each parameter], a note for the user or "").

    The list is empty without a profile, with one server, with MXNet's own store, and for a script.
    If the profile is of another network or lacks a server, the list is empty, and the note gives
    this reason. With an empty list, MXNet or the store chooses the servers.

    Args: `servers` the host of each server; `groups` the
    number of groups.
    """
    scheme = schemes.of(options.kv)
    stock = not scheme.store or scheme.with_one_group and groups == 1
    if found is None or stock or options.script or len(servers) < 2:
        return [], ""
    if options.network != found.network:
        return [], "%s is of the network %s, so the profile chooses no servers for parameters" % (
            profile.title(found),
            found.network,
        )
    places = {
        (server.host, server.number): position for position, server in enumerate(found.servers)
    }
    wanted = numbered(servers)
    missing = ["%s server %d" % server for server in wanted if server not in places]
    if missing:
        return [], "%s has no speed of %s, so the profile chooses no servers for parameters: %s" % (
            profile.title(found),
            ", ".join(missing),
            CURE,
        )
    speeds = list(profile.server_speeds(found).items())
    return (
        grouping.placement(
            found.parameters,
            dict(speeds[places[server]] for server in wanted),
            options.bigarray_bound or int(options.env.get(BOUND, grouping.BIGARRAY_BOUND)),
        ),
        "",
    )


def check_batches(options: Options, shares: Sequence[Share], workers: Sequence[str]) -> None:
    """Refuse shares of a profile that give a worker fewer samples than a batch.

    A worker with such a shard would repeat the same samples in every batch. With shares from the
    user, shards may be smaller than a batch.

    Args: `shares` [(begin, end)] by worker, as fractions of 1; `workers` the host of each worker.
    """
    if options.script:
        return
    samples, batch = (
        training_samples(options.data, options.num_examples),
        options.batch_size,
    )
    refuse(
        "%s: the share from the profile holds %d of the %d training samples, less than a batch of "
        "%d: use a smaller batch_size, fewer workers (num_workers, without), or equal shares "
        "(data_allocator=0)" % (worker_name(host, number), end - begin, samples, batch)
        for (host, number), (begin, end) in zip(numbered(workers), cut(shares, samples))
        if end - begin < batch
    )


class Sources(NamedTuple):
    """The parts of a plan for which a profile is, or may be, the source."""

    groups: str  # the origin of the groups: FILE, LABELS, PROFILE or NOBODY
    shares: bool  # a profile that fits gives the shares
    sizes: bool = False  # a profile that fits gives the first balanced batch sizes
    loads: bool = False  # the profile gives the speeds of GPUs
    placement: bool = False  # the profile gives the servers of the parameters
    note: str = ""  # the note from `placement`


def used(
    options: Options, fitted: Optional[profile.Fit], sources: Sources
) -> Optional[UsedProfile]:
    """Return the plan's part about the profile, or None if no profile affects the plan.

    Args: `fitted` from `fit`.
    """
    grouped = schemes.of(options.kv).waits == schemes.GROUP
    of_options = sources.shares or sources.sizes or sources.loads
    affects = grouped or of_options or sources.placement or sources.note
    if fitted is None or not affects:
        return None
    found, does_fit = fitted.profile, fitted.positions is not None
    parts = (
        ("groups", sources.groups == PROFILE),
        ("shares", sources.shares and does_fit),
        ("first batch sizes", sources.sizes and does_fit),
        ("speeds of GPUs", sources.loads),
        ("servers of the parameters", sources.placement),
    )
    uses = [part for part, is_used in parts if is_used]
    lines = []
    if uses:
        other = [
            "%s %s" % (words, value)
            for words, value, wanted in (
                ("network", found.network, options.network),
                ("batch size", found.batch_size, options.batch_size),
            )
            if not options.script and value != wanted
        ]
        lines.append(
            "%s gives the %s%s"
            % (
                profile.title(found),
                listed(uses),
                ", measured with %s" % listed(other) if other else "",
            )
        )
    if "groups" in uses:
        lines.append("by its speeds, %s" % profile.reason(fitted))
    wanted = grouped and sources.groups in (PROFILE, NOBODY) or sources.shares or sources.sizes
    lines += [line for line in (fitted.note if wanted else "", sources.note) if line]
    return UsedProfile(
        job=found.job,
        time=found.time,
        fits=does_fit,
        uses=uses,
        notes=lines,
        noise=found.noise,
        speeds=list(profile.job_speeds(fitted).values()),
    )
