"""Give the servers and workers of a host CPUs of their own, or threads that fit a quota."""

import math
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from mxcluster import batch_systems
from mxcluster.environment import CPUS, THREADS, WAITING
from mxcluster.errors import BadInput, for_each
from mxcluster.job.plan.parts import parts
from mxcluster.launchers import LAUNCHERS
from mxcluster.lists import grouped, several, spans, unique
from mxcluster.model.node_record import Core, NodeRecord
from mxcluster.model.plan import SCHEDULER, WORKER, Plan, Process

Wanted = Union[str, Sequence[int]]  # the value of `cpus`

# The weights of the parts. A server mostly waits for the workers, whose gradients it adds up.
WORKER_WEIGHT, SERVER_WEIGHT = 4, 1


class Own(NamedTuple):
    """The part of a process."""

    cpus: List[int]
    variables: Mapping[str, str]


ALL = Own([], {})  # of a process without CPUs of its own


def of_processes(
    plan: Plan, records: Mapping[str, NodeRecord], wanted: Mapping[str, Wanted]
) -> Dict[str, Own]:
    """Return {process: its CPUs} of the servers and workers on the hosts that share CPUs out.

    On another host with a quota, a process gets the threads that fit the quota. The scheduler runs
    on all CPUs, because it only passes addresses and heartbeats on. Raises BadInput with the faults
    of all hosts.

    Args: `records` {host: node record}; `wanted` {host: value of `cpus`}, where [] shares no CPUs.
    """
    on_host = grouped((one.host, one) for one in plan.processes if one.role != SCHEDULER)
    hosts = [host for host in on_host if wanted[host]]

    def of_host(host: str) -> Dict[str, Own]:
        title = LAUNCHERS[plan.launcher].title
        if title and not batch_systems.facts(plan.launcher).tells_cpus:
            raise BadInput(
                "%s: cpus=%s is refused with launcher=%s, because %s does not tell a job which "
                "CPUs are its own: leave cpus out, and set OMP_NUM_THREADS in env_worker"
                % (host, _shown(wanted[host]), plan.launcher, title)
            )
        cores = _chosen(host, wanted[host], records[host])
        return _divided(host, on_host[host], cores, wanted[host])

    found: Dict[str, Own] = {}
    for host, own in on_host.items():
        found.update(_within_quota(own, records[host].cpu_limit))
    for of_one in for_each(of_host, hosts):
        found.update(of_one)
    return found


def _within_quota(own: Sequence[Process], limit: Optional[float]) -> Dict[str, Own]:
    """Return {process: its threads} under a quota of `limit` CPUs, {} without a quota.

    With a thread for each CPU of the machine, a process uses up the quota of a period at once, and
    then all its threads stop until the next period. The workers of a host share the quota.
    """
    if limit is None:
        return {}
    workers = max(1, sum(one.role == WORKER for one in own))
    threads = {WORKER: max(1, math.ceil(limit / workers))}
    return {one.name: Own([], {THREADS: str(threads.get(one.role, 1)), **WAITING}) for one in own}


def _chosen(host: str, wanted: Wanted, record: NodeRecord) -> List[Core]:
    """Return the cores of `record` that the job may use, each with its wanted CPUs only."""
    cores = record.cores or []
    there = [cpu for core in cores for cpu in core.cpus]
    if not there:
        raise BadInput(
            "%s: cpus=%s, but the node record has no facts about cores: run provision.yml"
            % (host, _shown(wanted))
        )
    if isinstance(wanted, str):
        if record.cpu_limit is not None:
            raise BadInput(
                "%s: cpus=auto, but a quota or the batch system gives %g of the %d CPUs to the "
                "job without naming them: let Slurm bind jobs (ConstrainCores of task/cgroup), "
                "give the container a cpuset, name CPUs such as cpus=0-3, or leave cpus out"
                % (host, record.cpu_limit, len(there))
            )
        return list(cores)
    lacking = set(wanted) - set(there)
    if lacking:
        raise BadInput(
            "%s: cpus=%s, but the node gives the CPUs %s to jobs: name CPUs of this node, or use "
            "cpus=auto" % (host, _shown(wanted), ",".join(spans(there)))
        )
    chosen = [core.replaced(cpus=[cpu for cpu in core.cpus if cpu in wanted]) for core in cores]
    return [core for core in chosen if core.cpus]


def _divided(
    host: str, own: Sequence[Process], cores: List[Core], wanted: Wanted
) -> Dict[str, Own]:
    """Return {process: its CPUs}, which are whole cores if the host has enough of them."""
    if len(cores) < len(own):  # Each CPU counts as a core.
        cores = [core.replaced(cpus=[cpu]) for core in cores for cpu in core.cpus]
    if len(cores) < len(own):
        raise BadInput(
            "%s: cpus=%s gives only %s to %d servers and workers: lower workers_per_host or "
            "servers_per_host, or leave cpus out"
            % (host, _shown(wanted), several(len(cores), "CPU"), len(own))
        )
    found: Dict[str, Own] = {}
    for members, of_members in _by_memory(own, cores):
        weights = [WORKER_WEIGHT if one.role == WORKER else SERVER_WEIGHT for one in members]
        for process, part in zip(members, parts(of_members, weights)):
            cpus = [cpu for core in part for cpu in core.cpus]
            variables = {CPUS: ",".join(map(str, cpus)), THREADS: str(len(part)), **WAITING}
            found[process.name] = Own(cpus, variables)
    return found


def _by_memory(own: Sequence[Process], cores: List[Core]) -> List[Tuple[List[Process], List[Core]]]:
    """Return the processes and the cores of each NUMA node.

    If the NUMA nodes cannot get equal numbers of workers, all count as one. Then a worker may have
    cores of two NUMA nodes.
    """
    memories = unique(core.memory for core in cores)
    workers = [one for one in own if one.role == WORKER]
    servers = [one for one in own if one.role != WORKER]
    count, each = len(memories), len(workers) // len(memories)
    found = []
    for number, memory in enumerate(memories):
        members = servers[number::count] + workers[number * each : (number + 1) * each]
        found.append((members, [core for core in cores if core.memory == memory]))
    fits = all(len(members) <= len(of_members) for members, of_members in found)
    if len(workers) % count or not workers or not fits:
        return [(list(own), cores)]
    return found


def _shown(wanted: Wanted) -> str:
    return wanted if isinstance(wanted, str) else ",".join(spans(wanted))
