"""Choose the hosts of the scheduler, of each server and of each worker."""

from collections import Counter
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from mxcluster.cluster.driver import restarts
from mxcluster.cluster.files import parse_hosts
from mxcluster.errors import BadInput, for_each, refuse
from mxcluster.job.knob_table import MOST_PROCESSES, SLOWDOWN
from mxcluster.job.option_types import (
    LEAST,
    MOST,
    MOST_GPU,
    Option,
    are_weights,
    between,
    cast_value,
    to_gpus,
    to_numbers,
    to_text,
)
from mxcluster.job.plan.addresses import Node
from mxcluster.lists import grouped, unique
from mxcluster.numbers import to_float, to_int

# Each worker and each server is a separate process with a port and a copy of MXNet in memory.
MOST_PER_HOST = 256
_PER_HOST = (
    "a whole number from 1 to %d (to exclude the host, remove the host from the group %%s)"
    % MOST_PER_HOST
)
# All host variables except addresses. The module `addresses` reads the variables of addresses.
HOST_VARIABLES = {
    option.name: option
    for option in (
        Option("workers_per_host", 1, to_int, between(1, MOST_PER_HOST), _PER_HOST % "workers"),
        Option("servers_per_host", 1, to_int, between(1, MOST_PER_HOST), _PER_HOST % "servers"),
        Option(
            "worker_share",
            1.0,
            to_float,
            between(LEAST, MOST),
            "a weight from %.6f to %d, such as 1 or 2.5" % (LEAST, MOST),
        ),
        Option(
            "worker_group",
            "",
            to_text,
            lambda label: label.isprintable() and len(label) <= 100,
            "a label of one line, at most 100 characters (put words such as yes and no in quotes)",
        ),
        Option(
            "worker_batch_max",
            0,
            to_int,
            between(0, MOST),
            "a whole number of samples from 0 to %d (0: no limit, and only for balance=batch)"
            % MOST,
        ),
        SLOWDOWN,
        Option(
            "gpus",
            "auto",
            to_gpus,
            None,
            "auto, '' (no GPU) or a list of GPU numbers from 0 to %d such as [0, 1]" % MOST_GPU,
        ),
        Option(
            "gpu_speeds",
            [],
            to_numbers,
            are_weights,
            "'' (equal speeds) or a list of numbers from %.6f to %d such as [3, 1], one for each "
            "GPU of the node" % (LEAST, MOST),
        ),
    )
}


def host_variable(name: str, host: str, variables: Dict[str, Dict[str, Any]]) -> Any:
    """Return the typed and checked value of the host variable `name` of `host`, or the default.

    Args: `variables` {host: {host variable: value}}.
    """
    return cast_value(HOST_VARIABLES[name], (variables.get(host) or {}).get(name), where=host)


def of_workers(name: str, lines: Sequence[str], variables: Dict[str, Dict[str, Any]]) -> List[Any]:
    """Return a list with the value of the host variable `name` for each worker.

    Args: `lines` the host of each worker; `variables` {host: {host variable: value}}.
    """
    hosts = unique(lines)
    values = dict(zip(hosts, for_each(lambda host: host_variable(name, host, variables), hosts)))
    return [values[host] for host in lines]


def scheduler(groups: Dict[str, Sequence[str]]) -> str:
    """Return the host in the group scheduler. BadInput if the group has no host or several hosts.

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
    groups: Dict[str, Sequence[str]],
    variables: Dict[str, Dict[str, Any]],
    wanted: int,
    in_batch: bool = False,
) -> List[str]:
    """Return the host of each of the first `wanted` servers, in the order of the group servers.

    With `wanted` 0, the list has all servers. BadInput if the group has fewer servers.

    Args: `groups` {name of a group: hosts}; `variables` {host: {host variable: value}}; `in_batch`
    True for a job of a batch system, whose nodes have no groups.
    """
    hosts = _per_host("servers", groups, variables)
    return hosts[: _count("num_servers", wanted, len(hosts), "servers", in_batch)]


def workers(
    groups: Dict[str, Sequence[str]],
    variables: Dict[str, Dict[str, Any]],
    hosts_text: Optional[str],
    name: str,
    find: Callable[[str], Node],
) -> List[str]:
    """Return the host of each possible worker, in the order of the worker indices.

    Each line of the hosts file is a worker. Without this file, the hosts of the group workers give
    the workers. BadInput if the group is empty or the file is invalid.

    Args: `groups` {name of a group: hosts}; `variables` {host: {host variable: value}};
    `hosts_text` the content of the hosts file, or None; `name` the name of the hosts file in
    messages; `find` a function that returns the Node of a host.
    """
    hosts = _per_host("workers", groups, variables)
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

    Without a distributed scheme (kv local, device) a job has one worker. BadInput if `wanted` is
    larger than `there`.

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


def check_provisioned(hosts: Iterable[str], records: Dict[str, Dict[str, Any]]) -> None:
    """Refuse nodes whose driver waits for a restart, and records without the path of Python.

    Other versions of mxcluster wrote such records (`node_records.of_file`).
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
        if not records[host].get("python")
    )


def check_versions(hosts: Iterable[str], records: Dict[str, Dict[str, Any]]) -> None:
    """Refuse nodes with different versions of MXNet.

    Also refuse nodes with the same build of MXNet, such as cu92, but different files libmxnet.so.
    Nodes with a CPU build and nodes with a GPU build may share a job.

    Each version of MXNet has a different protocol between servers and workers. The versions of
    Python and numpy may differ, because optimizers travel as JSON (`kvstore.optimizer_json`).
    """
    problems = []
    versions = grouped((str(records[host].get("mxnet")), host) for host in hosts)
    if len(versions) > 1:
        problems.append(
            "the nodes have different versions of MXNet (%s), and a job needs one version: set the "
            "same mxnet_version for these nodes, and run provision.yml"
            % "; ".join("%s: %s" % (version, ", ".join(versions[version])) for version in versions)
        )
    libraries = {
        host: str((records[host].get("fingerprints") or {}).get("libmxnet.so") or "")
        for host in hosts
    }
    # The files libmxnet.so of GPU builds and CPU builds differ, so compare nodes with equal builds.
    for kind in unique(build_of(records[host]) for host in hosts):
        builds = grouped(
            (digest, host)
            for host, digest in libraries.items()
            if digest and build_of(records[host]) == kind
        )
        if len(builds) > 1:
            problems.append(
                "the nodes have different builds of libmxnet.so (sha256 %s): remove the folder "
                "mxcluster_env_dir on the nodes with the wrong build, and run provision.yml"
                % "; ".join("%s: %s" % (told[:12], ", ".join(builds[told])) for told in builds)
            )
    refuse(problems)


def build_of(record: Dict[str, Any]) -> str:
    """Return the build of MXNet in a node record: "cu92" for CUDA 9.2, "cpu", or "" if unknown."""
    return str(record.get("target") or "")


def _per_host(
    role: str, groups: Dict[str, Sequence[str]], variables: Dict[str, Dict[str, Any]]
) -> List[str]:
    hosts = list(groups.get(role) or [])
    if not hosts:
        raise BadInput("the group %s has no host: put at least one host into this group" % role)
    counts = for_each(lambda host: host_variable(role + "_per_host", host, variables), hosts)
    return [host for host, count in zip(hosts, counts) for _ in range(count)]


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
