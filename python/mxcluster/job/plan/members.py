"""Choose the hosts of the scheduler, of each server and of each worker."""

from collections import Counter
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence

from mxcluster.cluster.driver import restarts
from mxcluster.cluster_files import parse_hosts
from mxcluster.errors import BadInput, refuse
from mxcluster.job.plan.addresses import Node
from mxcluster.lists import grouped, unique
from mxcluster.model.host_variables import MOST_PER_HOST, HostVariables
from mxcluster.model.job_knobs import MOST_PROCESSES
from mxcluster.model.node_record import NodeRecord

Variables = Mapping[str, HostVariables]  # of each host in the groups


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


def servers(
    groups: Mapping[str, Sequence[str]],
    variables: Variables,
    wanted: int,
    in_batch: bool = False,
) -> List[str]:
    """Return the host of each of the first `wanted` servers, in the order of the group servers.

    With `wanted` 0, the list has all servers. Raises BadInput if the group has fewer servers.

    Args: `groups` {name of a group: hosts}; `variables` {host: host variables}; `in_batch`
    True for a job of a batch system, whose nodes have no groups.
    """
    hosts = _in_group("servers", groups)
    hosts = [host for host in hosts for _ in range(variables[host].servers_per_host)]
    return hosts[: _count("num_servers", wanted, len(hosts), "servers", in_batch)]


def workers(
    groups: Mapping[str, Sequence[str]],
    variables: Variables,
    hosts_text: Optional[str],
    name: str,
    find: Callable[[str], Node],
) -> List[str]:
    """Return the host of each possible worker, in the order of the worker indices.

    Each line of the hosts file is a worker. Without this file, the hosts of the group workers give
    the workers. Raises BadInput if the group is empty or the file is invalid.

    Args: `groups` {name of a group: hosts}; `variables` {host: host variables};
    `hosts_text` the content of the hosts file, or None; `name` the name of the hosts file in
    messages; `find` a function that returns the Node of a host.
    """
    hosts = _in_group("workers", groups)
    hosts = [host for host in hosts for _ in range(variables[host].workers_per_host)]
    if hosts_text is None:
        return hosts
    by_address, unknown = {}, []  # type: Dict[str, List[str]], List[str]
    for host in unique(hosts):
        try:
            by_address.setdefault(find(host).address, []).append(host)
        except BadInput as refusal:  # shown only if the hosts file is invalid
            unknown.append(str(refusal))
    try:
        lines = parse_hosts(hosts_text, name, list(by_address))
    except BadInput as refusal:
        raise BadInput("\n".join([str(refusal)] + unknown)) from None
    refuse(
        "%s: %s is the address of %s: give each of these hosts its own node_address"
        % (name, line, " and ".join(by_address[line]))
        for line in unique(lines)
        if len(by_address[line]) > 1
    )
    return [by_address[line][0] for line in lines]


def number_of_workers(distributed: bool, wanted: int, there: int, in_batch: bool = False) -> int:
    """Return the number of workers of the job: `wanted`, or `there` if `wanted` is 0.

    Without a distributed scheme (kv local, device) a job has one worker. Raises BadInput if
    `wanted` is larger than `there`.

    Args: `there` the number of workers of the cluster; `in_batch` as for `servers`.
    """
    count = _count("num_workers", wanted, there, "workers", in_batch)
    return count if distributed else 1


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


def check_forks(hosts: Sequence[str], forks: int) -> None:
    """Raise BadInput if Ansible has fewer forks than `hosts`.

    Ansible runs a task on at most `forks` nodes at a time. The leases of all other nodes would
    expire.
    """
    if forks < len(hosts):
        raise BadInput(
            "forks=%d is fewer than the %d nodes of the job: set forks = %d in ansible.cfg, or "
            "call ansible-playbook with -f %d" % (forks, len(hosts), len(hosts), len(hosts))
        )


def check_provisioned(hosts: Iterable[str], records: Mapping[str, NodeRecord]) -> None:
    """Refuse nodes whose driver waits for a restart, and records without the path of Python.

    Other versions of mxcluster wrote such records (`node_record.from_file`).
    """
    waiting = restarts({host: records[host] for host in hosts})
    refuse(
        "%s: %s, and only a restart can change this: restart %s, then run provision.yml again"
        % (host, why, host)
        for host, why in waiting.items()
    )
    refuse(
        "%s: another version of mxcluster has provisioned the node: run provision.yml" % host
        for host in hosts
        if not records[host].python
    )


def check_versions(hosts: Iterable[str], records: Mapping[str, NodeRecord]) -> None:
    """Refuse nodes with different versions of MXNet.

    Also refuse nodes with the same build of MXNet, such as cu92, but different files libmxnet.so.
    Nodes with a CPU build and nodes with a GPU build may share a job.

    Each version of MXNet has a different protocol between servers and workers. The versions of
    Python and numpy may differ, because optimizers travel as JSON (`kvstore.optimizer_json`).
    """
    problems = []
    versions = grouped((records[host].mxnet or "unknown", host) for host in hosts)
    if len(versions) > 1:
        problems.append(
            "the nodes have different versions of MXNet (%s), and a job needs one version: set the "
            "same mxnet_version for these nodes, and run provision.yml"
            % "; ".join("%s: %s" % (version, ", ".join(versions[version])) for version in versions)
        )
    libraries = {host: records[host].fingerprints.get("libmxnet.so", "") for host in hosts}
    # The files libmxnet.so of GPU builds and CPU builds differ, so compare nodes with equal builds.
    for target in unique(records[host].target for host in hosts):
        builds = grouped(
            (digest, host)
            for host, digest in libraries.items()
            if digest and records[host].target == target
        )
        if len(builds) > 1:
            problems.append(
                "the nodes have different builds of libmxnet.so (sha256 %s): remove the folder "
                "mxcluster_env_dir on the nodes with the wrong build, and run provision.yml"
                % "; ".join(
                    "%s: %s" % (digest[:12], ", ".join(builds[digest])) for digest in builds
                )
            )
    refuse(problems)


def _in_group(group: str, groups: Mapping[str, Sequence[str]]) -> List[str]:
    hosts = list(groups.get(group) or [])
    if not hosts:
        raise BadInput("the group %s has no host: put at least one host into this group" % group)
    return hosts


def _count(option: str, wanted: int, there: int, role: str, in_batch: bool) -> int:
    if wanted > there:
        raise BadInput(
            "%s=%d, but %s has only %d %s: use at most %d, or %s"
            % (
                option,
                wanted,
                "the job" if in_batch else "the cluster",
                there,
                role,
                there,
                "raise num_nodes, or %s_per_host of the submit host" % role
                if in_batch
                else "add hosts to the group %s" % role,
            )
        )
    return wanted or there
