"""Make the plan of a job: the host, address, port, GPUs, group and environment of each process.

All functions are pure. They read the inventory, the node records and the texts of the cluster
files. The later stages of a job only carry out the plan.

The stages: `site` finds the nodes, `division` divides workers and data, `work` gives each worker
its GPUs and sizes, and `processes` gives each process its address, command and environment.
"""

import posixpath
from typing import Dict, List, Mapping, Optional

from mxcluster import cluster_files, schemes
from mxcluster.cluster.profile import Fit
from mxcluster.errors import BadInput
from mxcluster.job import launchers
from mxcluster.job.options import step_size
from mxcluster.job.plan import (
    addresses,
    containers,
    cores,
    division,
    firewall,
    gpus,
    members,
    paces,
    ports,
    processes,
    profiled,
)
from mxcluster.job.plan.members import Members, members_of
from mxcluster.job.plan.nodes import nodes_of
from mxcluster.job.plan.site import Inputs, Site, Texts, hosts_of
from mxcluster.job.plan.table import batches, table
from mxcluster.job.plan.work import Work, work_of
from mxcluster.launchers import LAUNCHERS
from mxcluster.lists import unique
from mxcluster.model.inventory import Inventory
from mxcluster.model.job_knobs import Options
from mxcluster.model.node_record import MachineFacts
from mxcluster.model.plan import (
    SERVER,
    WORKER,
    ClusterFiles,
    Heartbeat,
    NodePlan,
    Plan,
    Process,
    RendezvousRequest,
    Root,
    Timeouts,
)
from mxcluster.model.profile import Profile

__all__ = ["Inputs", "make_plan", "make_cluster_files", "for_node", "table", "batches"]

RENDEZVOUS_SECONDS = 30  # timeout of the rendezvous; the agents start at different times
RENDEZVOUS_CLOCK = 1.0  # largest allowed difference between the clocks of two nodes, in seconds


def make_plan(inputs: Inputs) -> Plan:
    """Return the plan of one job. Raises BadInput with all faults of the inputs."""
    options, records = inputs.options, inputs.records
    hosts = hosts_of(inputs.inventory)
    site = Site(options, inputs.inventory, hosts, records, inputs.files)
    chosen = members_of(site, options)
    places = site.locate(chosen.hosts)
    nodes = nodes_of(places, records, inputs.job, options)
    launchers.check(options.launcher, nodes, site.variables)
    containers.check_units(options.runtime, chosen.hosts, site.variables)
    fitted = profiled.fit(inputs.profile, chosen.workers) if chosen.scheduler else None
    divided = division.divide(site, options, chosen.everyone, len(chosen.workers), fitted)
    placement, note = profiled.placement(
        inputs.profile, options, chosen.servers, len(divided.groups)
    )
    if not options.script:
        first = chosen.workers[0]
        processes.check_network(options.network, first, records[first])
    work = work_of(inputs, site, chosen.workers, divided, fitted)
    sources = work.sources._replace(placement=bool(placement), note=note)
    plan = _with_processes(
        Plan(
            job=inputs.job,
            kv=options.kv,
            lease=0 if options.detach else options.lease,
            launcher=options.launcher,
            subnet=addresses.network(places, records),
            workers=len(chosen.workers),
            heartbeat=Heartbeat(
                interval=processes.HEARTBEAT_INTERVAL, timeout=options.heartbeat_timeout
            ),
            timeouts=Timeouts(start=options.start_timeout, stall=options.stall_timeout),
            groups=divided.groups,
            group_labels=divided.labels,
            together=work.together,
            shares=work.shares,
            placement=placement,
            staleness=options.staleness,
            balance=work.balance,
            slowdowns=paces.slowdowns(options, chosen.workers, site.variables),
            changes=paces.changes(chosen.workers, site.variables),
            options=options,
            container=containers.of(options, options.image),
            nodes=nodes,
            ports_open=_open_hosts(chosen, options, site),
            processes=[],
            profile=profiled.used(options, fitted, sources),
            needs_profile=_needs_profile(options, divided, len(chosen.workers)),
        ),
        inputs,
        chosen,
        work,
    )
    _check_batches(plan, chosen.workers, divided, fitted)
    return plan


def _open_hosts(chosen: Members, options: Options, site: Site) -> List[str]:
    """Return the hosts on which the job runs without root, and so cannot close its ports.

    On all other hosts, the look reports whether the ports are open.
    """
    engine = LAUNCHERS[options.launcher].engine
    return [
        host
        for host in chosen.hosts
        if chosen.scheduler and (engine or not site.variables[host].mxcluster_user)
    ]


def _needs_profile(options: Options, divided: division.Division, workers: int) -> bool:
    """Return True if grouping=auto finds no groups, so that a profile would change the plan."""
    return bool(
        options.grouping == "auto"
        and divided.origin == profiled.NOBODY
        and schemes.of(options.kv).waits == schemes.GROUP
        and workers > 1
    )


def _with_processes(plan: Plan, inputs: Inputs, chosen: Members, work: Work) -> Plan:
    """Return `plan` with its processes, ports and cluster files."""
    servers, each = processes.servers_of(chosen.servers, plan.kv, plan.groups)
    members.check_total(len(servers), "server processes")
    processes.check_bound(plan.options, len(servers))
    laid_out = processes.lay_out(chosen.scheduler, servers, chosen.workers, plan.nodes)
    port = ports.root_port(plan.options.root_port, laid_out, inputs.held or {}, inputs.first_port)
    lines = [plan.nodes[host].address for host in chosen.workers]
    root = plan.nodes[chosen.scheduler].address if chosen.scheduler else ""
    plan = plan.replaced(
        servers=len(servers),
        root=Root(address=root, port=port) if root else None,
        files=_texts(lines, plan.groups, work.shares),
        processes=[
            process.replaced(group=process.index % each)
            if process.role == SERVER and each > 1 and process.index is not None
            else process
            for process in ports.moved(laid_out, port)
        ],
    )
    return plan.replaced(processes=_equipped(plan, inputs, work))


def _equipped(plan: Plan, inputs: Inputs, work: Work) -> List[Process]:
    """Return the processes of `plan` with GPUs, group, share, folder, command and environment."""
    options = plan.options.replaced(lr=step_size(plan.options, plan.workers))
    group_of = {index: number for number, group in enumerate(plan.groups) for index in group}
    common, sizes, result = processes.of_all(plan), paces.unusual_sizes(plan), []
    own = cores.of_processes(plan, inputs.records, work.cpus)
    for process in plan.processes:
        arguments = None
        if process.role == WORKER and process.index is not None:
            process = process.replaced(
                gpus=work.gpus[process.index],
                work_load=work.loads[process.index],
                group=group_of[process.index],
                share=plan.shares[process.index],
                folder=processes.own_folder(process, plan.options),
            )
            # A saved model lies in the job folder.
            model = posixpath.join(plan.nodes[process.host].job_dir, inputs.model_file or "")
            arguments = processes.program_arguments(
                process,
                options,
                inputs.records[process.host].data_dir,
                model if inputs.model_file else None,
            ).replaced(progress=plan.balance.progress if plan.balance else None, **sizes)
            arguments = paces.slowed(arguments, plan, process.index or 0)
        command = processes.command(process, plan, arguments)
        cpus, variables = own.get(process.name, cores.ALL)
        env = processes.environment(process, plan, dict(common, **variables))
        result.append(process.replaced(cpus=cpus, command=command, env=env))
    return result


def _check_batches(
    plan: Plan, workers: List[str], divided: division.Division, fitted: Optional[Fit]
) -> None:
    """Refuse shares without a sample, and batches that do not fit the shares or the GPUs."""
    batches(plan)
    if divided.wants_profile and not plan.balance and fitted and fitted.positions is not None:
        profiled.check_batches(plan.options, plan.shares, workers)
    if not plan.options.script:
        gpus.check_batch(plan.options.batch_size, plan.of_role(WORKER))


def make_cluster_files(
    options: Options,
    inventory: Inventory,
    records: Mapping[str, MachineFacts],
    files: Texts,
    profile: Optional[Profile] = None,
) -> ClusterFiles:
    """Return the addresses and cluster files of the whole cluster.

    The plan of a dist_gsync job with data_allocator=1 on all nodes has the same values. Raises
    BadInput with all faults of the inputs.

    Args: as for `Inputs`. The function reads only the options dmlc_interface, hosts_file,
    groups_file and data_sharding_file. A record needs only the addresses of the node, so that the
    function can refuse an inventory before provision.yml installs MXNet.
    """
    options = options.replaced(data_allocator=1, kv="dist_gsync")
    site = Site(options, inventory, hosts_of(inventory), records, files)
    servers, workers = members.servers(site, 0), members.workers(site)
    places = site.locate(unique([members.scheduler(site.groups)] + servers + workers))
    lines = [places[host].address for host in workers]
    fitted = profiled.fit(profile, workers)
    divided = division.divide(site, options, workers, len(workers), fitted)
    sources = profiled.Sources(groups=divided.origin, shares=divided.wants_profile)
    used = profiled.used(options, fitted, sources)
    return ClusterFiles(
        nodes=places,
        files=_texts(lines, divided.groups, divided.shares),
        notes=used.notes if used else [],
    )


def _texts(
    lines: List[str], groups: List[List[int]], shares: List[cluster_files.Share]
) -> Dict[str, str]:
    """Return the texts of the three cluster files. Args: `lines` the address of each worker."""
    return {
        "hosts": cluster_files.render_hosts(lines),
        "groups": cluster_files.render_groups(groups, lines),
        "data_sharding": cluster_files.render_data_sharding(shares),
    }


def for_node(plan: Plan, host: str) -> NodePlan:
    """Return the part of the plan for the node `host`.

    Raises BadInput if the job has no process on `host`.
    """
    if host not in plan.nodes:
        raise BadInput(
            "%s has no part in the job %s: name one of the job's nodes, %s"
            % (host, plan.job, ", ".join(sorted(plan.nodes)))
        )
    own, peers = plan.of_host(host), [process.peer for process in plan.processes]
    rendezvous = RendezvousRequest(
        own=[peer for peer in peers if peer.host == host],
        timeout=RENDEZVOUS_SECONDS,
        clock=RENDEZVOUS_CLOCK,
    )
    common = dict(vars(plan), nodes={host: plan.nodes[host]}, processes=own)
    return NodePlan(
        host=host,
        peers=peers,
        firewall=firewall.wish(plan, host, own, peers) if plan.nodes[host].address else None,
        rendezvous=rendezvous if plan.talks else None,
        **common,
    )
