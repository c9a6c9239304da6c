"""Choose the hosts of the scheduler, of each server and of each worker."""

from collections import Counter
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from mxcluster import schemes
from mxcluster.cluster_files import parse_hosts
from mxcluster.errors import BadInput, refuse
from mxcluster.job.plan import round_robin
from mxcluster.job.plan.site import Site
from mxcluster.launchers import LAUNCHERS
from mxcluster.lists import unique
from mxcluster.model.host_variables import MOST_PER_HOST
from mxcluster.model.job_knobs import MOST_PROCESSES, Options


class Members(NamedTuple):
    """The host of each process of a training. The number of a worker is its place in a list.

    The user's files describe `everyone`, and the job uses the first of these as its `workers`.
    """

    scheduler: Optional[str]
    servers: List[str]
    everyone: List[str]
    workers: List[str]

    @property
    def hosts(self) -> List[str]:
        """All hosts of the job."""
        first = [self.scheduler] if self.scheduler else []
        return unique(first + self.servers + self.workers)


def members_of(site: Site, options: Options) -> Members:
    """Return the hosts of the scheduler, the servers and the workers of a training.

    Raises BadInput if the groups have too few hosts, or if the job has too many processes.
    """
    distributed = schemes.of(options.kv).is_distributed
    in_batch = LAUNCHERS[options.launcher].is_batch
    first = scheduler(site.groups) if distributed else None
    number = 0 if options.round_robin else options.num_servers
    serving = servers(site, number, in_batch) if distributed else []
    everyone = workers(site)
    if options.round_robin:
        dealt = round_robin.place(site, options)
        serving, everyone = dealt[0] if distributed else [], dealt[1]
    count = _count("num_workers", options.num_workers, len(everyone), "workers", in_batch)
    # Without a distributed scheme (kv local, device) a job has one worker.
    working = everyone[: count if distributed else 1]
    check_numbers({"servers": serving, "workers": working})
    return Members(first, serving, everyone, working)


def scheduler(groups: Mapping[str, Sequence[str]]) -> str:
    """Return the host in the group scheduler.

    Raises BadInput if the group has no host or several hosts.

    Args: `groups` {name of a group: hosts}.
    """
    hosts = list(groups.get("scheduler") or [])
    if len(hosts) != 1:
        raise BadInput(
            "the group scheduler has %s: put exactly one host into this group"
            % ("%d hosts (%s)" % (len(hosts), ", ".join(hosts)) if hosts else "no host")
        )
    return hosts[0]


def servers(site: Site, number: int, in_batch: bool = False) -> List[str]:
    """Return the host of each of the first `number` servers, in the order of the group servers.

    With `number` 0, the list has all servers. Raises BadInput if the group has fewer servers.

    Args: `in_batch` True for a job of a batch system, whose nodes have no groups.
    """
    hosts = _in_group("servers", site.groups)
    hosts = [host for host in hosts for _ in range(site.variables[host].servers_per_host)]
    return hosts[: _count("num_servers", number, len(hosts), "servers", in_batch)]


def workers(site: Site) -> List[str]:
    """Return the host of each possible worker, in the order of the worker indices.

    Each line of the hosts file is a worker. Without this file, the hosts of the group workers give
    the workers. Raises BadInput if the group is empty or the file is invalid.
    """
    hosts = _in_group("workers", site.groups)
    hosts = [host for host in hosts for _ in range(site.variables[host].workers_per_host)]
    text, name = site.files.get("hosts"), site.names["hosts"]
    if text is None:
        return hosts
    by_address, unknown = {}, []  # type: Dict[str, List[str]], List[str]
    for host in unique(hosts):
        try:
            by_address.setdefault(site.find(host).address, []).append(host)
        except BadInput as refusal:  # shown only if the hosts file is invalid
            unknown.append(str(refusal))
    try:
        lines = parse_hosts(text, name, list(by_address))
    except BadInput as refusal:
        raise BadInput("\n".join([str(refusal)] + unknown)) from None
    refuse(
        "%s: %s is the address of %s: give each of these hosts its own node_address"
        % (name, line, " and ".join(by_address[line]))
        for line in unique(lines)
        if len(by_address[line]) > 1
    )
    return [by_address[line][0] for line in lines]


def check_numbers(processes: Dict[str, Sequence[str]]) -> None:
    """Refuse a job with too many processes, or too many of them on one host.

    The host variables have the same bound, but a hosts file and round_robin may name a host often.

    Args: `processes` {"servers" or "workers": the host of each process}.
    """
    for role, hosts in processes.items():
        check_total(len(hosts), role)
    refuse(
        "%s: the job has %d %s on this host, and a host runs at most %d: use fewer %s or more hosts"
        % (host, count, role, MOST_PER_HOST, role)
        for role, hosts in processes.items()
        for host, count in Counter(hosts).items()
        if count > MOST_PER_HOST
    )


def check_total(count: int, what: str) -> None:
    """Refuse a job with more than MOST_PROCESSES workers, servers or server processes.

    Args: `count` their number; `what` their name in the message.
    """
    if count > MOST_PROCESSES:
        raise BadInput(
            "the job has %d %s, and mxcluster plans at most %d: use fewer workers, servers or "
            "groups" % (count, what, MOST_PROCESSES)
        )


def _in_group(group: str, groups: Mapping[str, Sequence[str]]) -> List[str]:
    hosts = list(groups.get(group) or [])
    if not hosts:
        raise BadInput("the group %s has no host: put at least one host into this group" % group)
    return hosts


def _count(option: str, number: int, there: int, role: str, in_batch: bool) -> int:
    if number > there:
        raise BadInput(
            "%s=%d, but %s has only %d %s: use at most %d, or %s"
            % (
                option,
                number,
                "the job" if in_batch else "the cluster",
                there,
                role,
                there,
                "raise num_nodes, or %s_per_host of the submit host" % role
                if in_batch
                else "add hosts to the group %s" % role,
            )
        )
    return number or there
