"""Divide the workers into groups, and the data into shares."""

from typing import List, NamedTuple, Optional, Tuple

from mxcluster import cluster_files, schemes
from mxcluster.cluster import grouping, profile
from mxcluster.cluster.profile import Fit
from mxcluster.errors import for_each
from mxcluster.job.plan import groups, profiled, shares
from mxcluster.job.plan.site import Site
from mxcluster.lists import unique
from mxcluster.model.job_knobs import Options


class Division(NamedTuple):
    """The groups of the workers, and the share of each worker."""

    groups: List[List[int]]
    labels: List[str]
    shares: List[cluster_files.Share]
    origin: str  # of the groups: FILE, LABELS, PROFILE or NOBODY of `profiled`
    wants_profile: bool  # True if a profile that fits gives the shares


def divide(
    site: Site, options: Options, everyone: List[str], count: int, fitted: Optional[Fit]
) -> Division:
    """Return the groups and the shares of the first `count` workers.

    Args: `everyone` the host of each possible worker; `fitted` from `profiled.fit`.
    """
    grouping, origin = _groups(site, options.kv, everyone, fitted)
    grouped, labels = groups.first(grouping, count)
    first = Division(grouped, labels, [], origin, False)
    parts, wanted = _shares(site, options, everyone, first, fitted)
    return first._replace(shares=parts, wants_profile=wanted)


def _groups(
    site: Site, kv: str, everyone: List[str], fitted: Optional[Fit]
) -> Tuple[groups.Groups, str]:
    """Return ((groups, labels) of all possible workers, origin of the groups).

    The groups file takes precedence over the host variable worker_group, and worker_group over the
    profile. The profile counts only under a scheme in which the members of a group wait for each
    other. Groups of a profile hold only the workers of the job. Without these sources, all workers
    form one group.
    """
    text = site.files.get("groups")
    if text is not None:
        hosts = unique(everyone)
        places = dict(zip(hosts, for_each(site.find, hosts)))
        lines = [places[host].address for host in everyone]
        return groups.from_file(text, lines, site.names["groups"]), profiled.FILE
    labelled = groups.from_labels(everyone, site.variables)
    if labelled:
        return labelled, profiled.LABELS
    known = profiled.complete(fitted)
    if known and schemes.of(kv).waits == schemes.GROUP:
        return profile.groups_of(known), profiled.PROFILE
    return ([list(range(len(everyone)))], ["all"]), profiled.NOBODY


def _shares(
    site: Site, options: Options, everyone: List[str], division: Division, fitted: Optional[Fit]
) -> Tuple[List[cluster_files.Share], bool]:
    """Return (share of each worker, True if a profile may give the shares, else False).

    The data_sharding file takes precedence over all other sources. With data_allocator=1, the host
    variable worker_share takes precedence over the profile. The profile counts under the schemes in
    which not all workers wait for each other. Without these sources, all shares are equal.
    """
    count = sum(map(len, division.groups))
    text, allocator, kv = site.files.get("data_sharding"), options.data_allocator, options.kv
    weight = [site.variables[host].weight for host in everyone[:count]]
    weighted, scheme = allocator == 1 and text is None, schemes.of(kv)
    in_groups = scheme.waits == schemes.GROUP
    if division.origin == profiled.LABELS or weighted and in_groups:
        shares.check_equal_inside(division.groups, division.labels, everyone, weight)
    apart = scheme.is_distributed and scheme.waits != schemes.EVERYBODY
    wanted = weighted and apart and not shares.are_given(everyone[:count], site.variables)
    # A worker that waits for no other worker trains at its own speed, as it does with balanced
    # batches. The worker then counts like a group of one worker.
    alone = [[index] for index in range(count)]
    counted = division.groups if in_groups and options.balance == "none" else alone
    known = profiled.complete(fitted) if wanted else None
    name = site.names["data_sharding"]
    if known:
        measured = grouping.shares(profile.job_speeds(known), counted)
        parts = cluster_files.tile(measured, range(count), "the shares of the profile")
    elif text is not None:
        parts = shares.from_file(text, len(everyone), count, name)
    else:
        parts = shares.proportional(weight if weighted else [1.0] * count)
    shares.check_scheme(kv, allocator, parts, name if text is not None else None)
    return parts, wanted
