"""Make the plan of a job: the host, address, port, GPUs, group and environment of each process.

All functions are pure. They read the inventory, the node records and the texts of the cluster
files, and return a dict that JSON can hold. The later stages of a job only carry out the plan.
"""

import posixpath
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from mxcluster import schemes
from mxcluster.cluster import files as cluster_files
from mxcluster.cluster.profile import Fit
from mxcluster.errors import BadInput, for_each
from mxcluster.job import launchers
from mxcluster.job.options import step_size
from mxcluster.job.plan import (
    addresses,
    containers,
    firewall,
    gpus,
    groups,
    measuring,
    members,
    paces,
    ports,
    processes,
    profiled,
    round_robin,
    shares,
)
from mxcluster.job.plan.table import batches, table
from mxcluster.lists import unique
from mxcluster.model.host_variables import HostVariables, of_hosts
from mxcluster.model.job_knobs import HOST, Options
from mxcluster.model.names import is_job_id
from mxcluster.model.node_record import MachineFacts, NodeRecord
from mxcluster.model.profile import Profile

__all__ = ["as_json", "make_plan", "make_cluster_files", "for_node", "talks", "table", "batches"]

Plan = Dict[str, Any]
Texts = Dict[str, Optional[str]]
Variables = Mapping[str, HostVariables]
FILES = ("hosts", "groups", "data_sharding")
MEETING_SECONDS = 30  # timeout of the rendezvous; the agents start at different times
MEETING_CLOCK = 1.0  # largest allowed difference between the clocks of two nodes, in seconds


def make_plan(
    options: Options,
    inventory: Dict[str, Any],
    records: Mapping[str, NodeRecord],
    files: Dict[str, Optional[str]],
    job: str,
    job_dirs: Dict[str, str],
    data_dirs: Optional[Dict[str, str]] = None,
    model_file: Optional[str] = None,
    held: Optional[ports.Held] = None,
    profile: Optional[Profile] = None,
    checkpoint: Optional[Dict[str, Any]] = None,
    first_port: int = ports.FIRST,
) -> Plan:
    """Return the plan of one job as a dict. BadInput lists all faults of the input.

    Args:
        options: the knobs from `options.cast`.
        inventory: {"groups": {"scheduler": [host], "servers": [...], "workers": [...]}, "hosts":
            {host: {host variable: value}}, "forks": Ansible's number of forks}.
        records: {host: node record}. BadInput if a host of the job has no record.
        files: {"hosts": text or None, "groups": ..., "data_sharding": ...}, the texts of
            hosts_file, groups_file and data_sharding_file.
        job: the id of the job, which is also the name of the job folder.
        job_dirs: {host: absolute path of the folder on the node that contains all job folders}.
        data_dirs: {host: folder on the node with the file of the data set `digits`}.
        model_file: the path on the nodes of the saved model to start from: absolute, or relative
            to the job folder.
        held: {host: ports and GPUs in use, from `mxcluster.node.probe.held`}. With None, all ports
            and GPUs count as free.
        profile: the measured speeds of the cluster, from `cluster.profile.of_file`. A profile that
            fits the job supplies the groups, shares, first batch sizes, GPU speeds and servers of
            parameters that the user has left out.
        checkpoint: the manifest of the checkpoint from which the job resumes.
        first_port: the port at which the search of root_port=auto begins.
    """
    if not is_job_id(job):
        raise BadInput(
            "job_id='%s' is refused: use at most 100 letters, digits, '.', '_' and '-', beginning "
            "with a letter or digit" % job
        )
    names = _names_of_files(options, files)
    distributed = schemes.of(options.kv).is_distributed
    by_group, variables = inventory["groups"], variables_of(inventory)

    def find(host: str) -> addresses.Node:
        return addresses.locate(host, variables[host], records.get(host), options.dmlc_interface)

    # The index of a worker is the number of the worker's line in the file hosts, from 0. The user's
    # files describe the workers of all lines, and the job uses the first `count` workers.
    scheduler = members.scheduler(by_group) if distributed else None
    wanted_servers = 0 if options.round_robin else options.num_servers
    in_batch = launchers.LAUNCHERS[options.launcher].is_batch
    servers = members.servers(by_group, variables, wanted_servers, in_batch) if distributed else []
    everyone = members.workers(by_group, variables, files.get("hosts"), names["hosts"], find)
    if options.round_robin:
        dealt = round_robin.place(options, by_group, variables, records, find)
        servers, everyone = dealt[0] if distributed else [], dealt[1]
    count = members.number_of_workers(distributed, options.num_workers, len(everyone), in_batch)
    workers = everyone[:count]
    members.check_numbers({"servers": servers, "workers": workers})
    hosts = unique(([scheduler] if scheduler else []) + servers + workers)
    members.check_forks(hosts, int(inventory["forks"]))

    found = for_each(find, hosts)
    addresses.check_distinct(found)
    addresses.check_loopback(found, records)
    members.check_provisioned(hosts, records)
    members.check_versions(hosts, records)
    nodes = {
        node.host: {
            "address": node.address,
            "interface": node.interface,
            "job_dir": posixpath.join(job_dirs[node.host], job),
            "python": records[node.host].python,
            "build": records[node.host].target,
        }
        for node in found
    }
    for host in nodes:
        cuda = records[host].cuda
        if cuda:
            nodes[host]["cuda"] = cuda.encode()
        if options.runtime != HOST:
            nodes[host]["mounts"] = containers.mounts(
                options.data_dir,
                (data_dirs or {}).get(host),
                cuda.folder if cuda else None,
            )
    launchers.check(options.launcher, nodes, variables)
    containers.check_units(options.runtime, hosts, variables)
    lines = [nodes[host]["address"] for host in workers]

    fitted = profiled.fit(profile, workers) if distributed else None
    grouping, origin = _groups(options.kv, everyone, variables, files, names, find, fitted)
    grouped, labels = groups.first(grouping, count)
    parts, wanted = _shares(
        options, everyone, variables, files, names, (grouped, labels), origin, fitted
    )
    placement, note = profiled.placement(profile, options, servers, len(grouped))
    if not options.script:
        processes.check_network(options.network, workers[0], records[workers[0]])

    held = held or {}
    gpu_lists = gpus.per_worker(workers, options.gpus, variables, records, held)
    # A job that measures speeds ignores the speeds of an earlier profile.
    known = None if measuring.is_profile(options) else fitted
    loads = profiled.gpu_speeds(known, gpu_lists, workers, options.batch_size)
    work_loads = gpus.work_loads(workers, gpu_lists, variables, records, loads)
    earlier = paces.earlier_sizes(checkpoint or {}, count)
    together = schemes.merged_sets(options.kv, grouped)
    balance = paces.first_sizes(
        options,
        workers,
        variables,
        [loads or [1.0] * len(numbers) for loads, numbers in zip(work_loads, gpu_lists)],
        together,
        earlier or profiled.speeds(fitted),
    )
    if balance:  # The batch sizes decide the shares, from the first epoch on.
        parts = shares.of_sizes(parts, balance["sizes"], together)
    servers, each = processes.servers_of(servers, options.kv, grouped)
    members.check_total(len(servers), "server processes")
    processes.check_bound(options, len(servers))
    port = ports.root_port(
        options.root_port,
        processes.lay_out(scheduler, servers, workers, nodes, ports.FIRST),
        held,
        first_port,
    )
    plan: Plan = {
        "schema": 1,
        "job": job,
        "kv": options.kv,
        "lease": 0 if options.detach else options.lease,
        "launcher": options.launcher,
        "subnet": addresses.network(found, records),
        "workers": count,
        "servers": len(servers),
        "heartbeat": {
            "interval": processes.HEARTBEAT_INTERVAL,
            "timeout": options.heartbeat_timeout,
        },
        "timeouts": {"start": options.start_timeout, "stall": options.stall_timeout},
        "root": {"address": nodes[scheduler]["address"], "port": port} if scheduler else None,
        "groups": grouped,
        "group_labels": labels,
        "together": together,
        "shares": [list(share) for share in parts],
        "placement": placement,
        "staleness": options.staleness,
        "balance": balance,
        "slowdowns": paces.slowdowns(options, workers, variables),
        "files": {
            "hosts": cluster_files.render_hosts(lines),
            "groups": cluster_files.render_groups(grouped, lines),
            "data_sharding": cluster_files.render_data_sharding(parts),
        },
        "options": options,
        "container": containers.of(options, options.image),
        "nodes": nodes,
        # On these hosts, jobs run without root and cannot close ports. On all other hosts, the look
        # reports whether the ports are open.
        "ports_open": [
            host
            for host in nodes
            if scheduler
            and (launchers.LAUNCHERS[options.launcher].engine or not variables[host].mxcluster_user)
        ],
        "processes": processes.lay_out(scheduler, servers, workers, nodes, port),
    }
    given = gpus.work_loads(workers, gpu_lists, variables, records)
    gives_loads = work_loads != given
    plan["profile"] = profiled.entry(plan, fitted, origin, wanted, note, not earlier, gives_loads)
    plan["needs_profile"] = (
        options.grouping == "auto"
        and origin == profiled.NOBODY
        and schemes.of(options.kv).waits == schemes.GROUP
        and count > 1
    )
    for process in plan["processes"]:
        if process["role"] == "server" and each > 1:
            process["group"] = process["index"] % each
    _equip(
        plan,
        gpu_lists,
        work_loads,
        data_dirs or {},
        model_file,
    )
    batches(plan)  # raises BadInput for a shard without a sample
    if wanted and not balance and fitted and fitted.positions is not None:
        profiled.check_batches(options, parts, workers)
    if not options.script:
        gpus.check_batch(
            options.batch_size,
            [process for process in plan["processes"] if process["role"] == "worker"],
        )
    return plan


def make_cluster_files(
    options: Options,
    inventory: Dict[str, Any],
    records: Mapping[str, MachineFacts],
    files: Dict[str, Optional[str]],
    profile: Optional[Profile] = None,
) -> Dict[str, Any]:
    """Return the addresses and cluster files of the whole cluster. BadInput lists all faults.

    The result is {"nodes": {host: {"address", "interface"}}, "files": {"hosts": text, ...},
    "notes": [lines about the profile]}. The plan of a dist_gsync job with data_allocator=1 on all
    nodes has the same values.

    Args: as for `make_plan`. The function reads only the options dmlc_interface, hosts_file,
    groups_file and data_sharding_file. A record needs only the addresses of the node, so that the
    function can refuse an inventory before provision.yml installs MXNet.
    """
    names = _names_of_files(options, files)
    by_group, variables = inventory["groups"], variables_of(inventory)

    def find(host: str) -> addresses.Node:
        return addresses.locate(host, variables[host], records.get(host), options.dmlc_interface)

    servers = members.servers(by_group, variables, 0)
    workers = members.workers(by_group, variables, files.get("hosts"), names["hosts"], find)
    hosts = unique([members.scheduler(by_group)] + servers + workers)
    members.check_forks(hosts, int(inventory["forks"]))
    found = for_each(find, hosts)
    addresses.check_distinct(found)
    addresses.check_loopback(found, records)

    located = {node.host: node.address for node in found}
    lines = [located[host] for host in workers]
    fitted = profiled.fit(profile, workers)
    options = options.replaced(data_allocator=1, kv="dist_gsync")
    grouping, origin = _groups(options.kv, workers, variables, files, names, find, fitted)
    parts, wanted = _shares(options, workers, variables, files, names, grouping, origin, fitted)
    told = profiled.entry(
        {"options": options, "kv": options.kv, "placement": []}, fitted, origin, wanted, ""
    )
    return {
        "nodes": {
            node.host: {"address": node.address, "interface": node.interface} for node in found
        },
        "files": {
            "hosts": cluster_files.render_hosts(lines),
            "groups": cluster_files.render_groups(grouping[0], lines),
            "data_sharding": cluster_files.render_data_sharding(parts),
        },
        "notes": told["notes"] if told else [],
    }


def variables_of(inventory: Dict[str, Any]) -> Variables:
    """Return {host: its host variables} for the hosts in the groups. BadInput lists all faults."""
    hosts = unique(host for group in inventory["groups"].values() for host in group or [])
    return of_hosts(hosts, inventory["hosts"])


def for_node(plan: Plan, host: str) -> Plan:
    """Return the plan for the node `host`: the processes on this node and all common entries.

    BadInput if the job has no process on `host`.
    """
    if host not in plan["nodes"]:
        raise BadInput(
            "%s has no part in the job %s: name one of the job's nodes, %s"
            % (host, plan["job"], ", ".join(sorted(plan["nodes"])))
        )
    part = dict(plan, host=host)
    part["nodes"] = {host: plan["nodes"][host]}
    part["processes"] = [process for process in plan["processes"] if process["host"] == host]
    # The addresses of all processes, for the firewall and for the rendezvous before the start.
    part["peers"] = [
        {key: process[key] for key in ("name", "role", "host", "address", "port")}
        for process in plan["processes"]
    ]
    part["firewall"] = firewall.wish(part)
    if talks(plan):
        part["meeting"] = {
            "own": [peer for peer in part["peers"] if peer["host"] == host],
            "timeout": MEETING_SECONDS,
            "clock": MEETING_CLOCK,
        }
    return part


def as_json(plan: Plan) -> Plan:
    """Return the plan as JSON, with the options as a dict."""
    return dict(plan, options=plan["options"].encode())


def talks(plan: Plan) -> bool:
    """Return True if a process of the plan has a port for connections from other processes."""
    return any(process["port"] is not None for process in plan["processes"])


def _names_of_files(options: Options, files: Texts) -> Dict[str, str]:
    """Return {"hosts": "hosts_file PATH", ...}, the names of the three cluster files for messages.

    BadInput if an option names a file whose text is missing in `files`.
    """
    paths = {name: vars(options)[name + "_file"] for name in FILES}
    for name, path in paths.items():
        if path and files.get(name) is None:
            raise BadInput("%s_file='%s' is missing: correct the path" % (name, path))
    return {name: "%s_file %s" % (name, path) if path else name for name, path in paths.items()}


def _groups(
    kv: str,
    everyone: List[str],
    variables: Variables,
    files: Texts,
    names: Dict[str, str],
    find: Callable[[str], addresses.Node],
    fitted: Optional[Fit],
) -> Tuple[groups.Groups, str]:
    """Return ((groups, labels) of all possible workers, origin of the groups).

    The groups file takes precedence over the host variable worker_group, and worker_group over the
    profile. The profile counts only under a scheme in which the members of a group wait for each
    other. Groups of a profile hold only the workers of the job. Without these sources, all workers
    form one group. The origin is one of the constants FILE, LABELS, PROFILE and NOBODY of
    `profiled`.
    """
    text = files.get("groups")
    if text is not None:
        located = {node.host: node.address for node in for_each(find, unique(everyone))}
        lines = [located[host] for host in everyone]
        return groups.from_file(text, lines, names["groups"]), profiled.FILE
    labelled = groups.from_labels(everyone, variables)
    if labelled:
        return labelled, profiled.LABELS
    proposed = profiled.groups(fitted) if schemes.of(kv).waits == schemes.GROUP else None
    if proposed:
        return proposed, profiled.PROFILE
    return ([list(range(len(everyone)))], ["all"]), profiled.NOBODY


def _shares(
    options: Options,
    everyone: List[str],
    variables: Variables,
    files: Texts,
    names: Dict[str, str],
    grouping: groups.Groups,
    origin: str,
    fitted: Optional[Fit],
) -> Tuple[List[cluster_files.Share], bool]:
    """Return (share of each worker, True if a profile may give the shares, else False).

    The data_sharding file takes precedence over all other sources. With data_allocator=1, the host
    variable worker_share takes precedence over the profile. The profile counts only if the members
    of a group wait for each other. Without these sources, all shares are equal.
    """
    count = sum(map(len, grouping[0]))
    text, allocator, kv = files.get("data_sharding"), options.data_allocator, options.kv
    weight = shares.weights(everyone[:count], variables)
    weighted, waits = allocator == 1 and text is None, schemes.of(kv).waits == schemes.GROUP
    if origin == profiled.LABELS or weighted and waits:
        shares.check_equal_inside(grouping[0], grouping[1], everyone, weight)
    wanted = weighted and waits and not shares.are_given(everyone[:count], variables)
    # With balanced batches, each worker trains at its own speed. The worker then counts like a
    # group of one worker.
    alone = [[index] for index in range(count)]
    counted = grouping[0] if options.balance == "none" else alone
    measured = profiled.weights(fitted, counted) if wanted else None
    if measured is not None:
        parts = cluster_files.tile(measured, range(count), "the shares of the profile")
    elif text is not None:
        parts = shares.from_file(text, len(everyone), count, names["data_sharding"])
    else:
        parts = shares.proportional(weight if weighted else [1.0] * count)
    shares.check_scheme(kv, allocator, parts, names["data_sharding"] if text is not None else None)
    return parts, wanted


def _equip(
    plan: Plan,
    gpu_lists: List[List[int]],
    work_loads: List[List[float]],
    data_dirs: Dict[str, str],
    model_file: Optional[str],
) -> None:
    """Add the GPUs, group, share, folder, command and environment to each process of `plan`.

    Args: `gpu_lists` the GPU numbers and `work_loads` the GPU speeds of each worker; `data_dirs`
    and `model_file` as for `make_plan`.
    """
    options: Options = plan["options"]
    options = options.replaced(lr=step_size(options, plan["workers"]))
    group_of = {index: number for number, group in enumerate(plan["groups"]) for index in group}
    common = processes.of_all(plan)
    for process in plan["processes"]:
        if process["role"] == "worker":
            index = process["index"]
            process["gpus"], process["work_load"] = gpu_lists[index], work_loads[index]
            process["group"] = group_of[index]
            process["share"] = plan["shares"][index]
        process["folder"] = processes.own_folder(process, plan["options"])
        process["command"] = processes.command(
            process,
            plan["nodes"][process["host"]],
            options,
            data_dirs.get(process["host"], ""),
            model_file,
            paces.arguments(plan, process["index"]) if process["role"] == "worker" else {},
        )
        process["env"] = processes.environment(process, plan, common)
