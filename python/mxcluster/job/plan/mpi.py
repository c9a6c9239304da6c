"""Make the plan of a job of mpi.yml, which runs an MPI program.

The plan has the same entries as the plan of a training. The entries about servers, groups and
shares are empty. On the first node, a process with the role mpirun runs mpirun. On each other node,
a process with the role node runs the daemon of mpirun. See `mxcluster.node.mpi_job`.
"""

import os
import posixpath
from typing import List, Mapping, Sequence

from mxcluster.errors import BadInput, for_each, refuse
from mxcluster.job.options import LOADER_VARIABLES, checked, refused_variables
from mxcluster.job.plan import Inputs, addresses, containers, gpus, ports
from mxcluster.job.plan.nodes import check_provisioned, node_of
from mxcluster.job.plan.processes import of_any
from mxcluster.job.plan.site import Site
from mxcluster.lists import aligned, several, unique
from mxcluster.model.job_knobs import HOST, MpiOptions, Options
from mxcluster.model.knob import MPI, names_read, read
from mxcluster.model.node_record import NodeRecord
from mxcluster.model.plan import (
    MPI_KIND,
    MPIRUN,
    NODE,
    Heartbeat,
    MpiHost,
    MpiProgram,
    Node,
    Place,
    Plan,
    Process,
    Timeouts,
)
from mxcluster.package import OWN_FOLDERS

# The knobs that mpi.yml reads.
KNOBS = names_read(MpiOptions, MPI)
PROGRAM = "mxcluster.node.mpi_job"


def cast(given: Mapping[str, object]) -> MpiOptions:
    """Return the knobs of an MPI program. Raises BadInput with all wrong values.

    Args: `given` {name: value} from the user; the function ignores the names of other knobs.
    """
    own = {name: given[name] for name in KNOBS if name in given}
    # The shape refuses an empty command, so that a missing mpi_command raises BadInput.
    options = checked(read(MpiOptions, dict({"mpi_command": ""}, **own, kv="local")))
    cure = "mxcluster's own processes would get this variable. Set the variable in "
    cure += "mpi_pre_execution_command, as export %s=..."
    forbidden = {name: cure % name for name in LOADER_VARIABLES}
    refuse(refused_variables("mpi_env", options.mpi_env, forbidden))
    return options


def _options(options: Options) -> MpiOptions:
    """Return the knobs of an MPI program, which only the plan of such a program has."""
    assert isinstance(options, MpiOptions)
    return options


def check_image(options: MpiOptions) -> None:
    """Refuse an image without containers, and containers without an image."""
    if bool(options.mpi_image) == (options.runtime != HOST):
        return
    raise BadInput(
        "mpi_image=%s needs a container engine: add -e runtime=docker or -e runtime=podman, or "
        "leave mpi_image out" % options.mpi_image
        if options.mpi_image
        else "runtime=%s needs mpi_image, the name of an image with the MPI engine and the "
        "program: add mpi_image, or use -e runtime=host" % options.runtime
    )


def make_plan(inputs: Inputs) -> Plan:
    """Return the plan of an MPI job. Raises BadInput with all faults of the inputs."""
    options, records = _options(inputs.options), inputs.records
    hosts = instances(unique(inputs.inventory.groups.get("workers") or []), options)
    site = Site(options, inputs.inventory, hosts, records, {})
    places = site.locate(hosts)
    check_provisioned(hosts, records)
    check_image(options)
    containers.check_units(options.runtime, hosts, site.variables)
    nodes = {host: _node(places[host], records[host], inputs.job, options) for host in hosts}
    numbers = gpus.per_worker(hosts, options.mpi_gpus, site.variables, records, inputs.held)
    gpu_lists = dict(zip(hosts, numbers))
    counts = for_each(lambda host: _processes(host, gpu_lists[host], options), hosts)
    laid_out = lay_out(hosts, nodes)
    port = ports.root_port(options.root_port, laid_out, inputs.held or {})
    processes = ports.moved(laid_out, port)
    plan = Plan(
        job=inputs.job,
        kv=MPI_KIND,
        lease=0 if options.detach else options.lease,
        workers=sum(counts),
        heartbeat=Heartbeat(interval=1, timeout=options.heartbeat_timeout),
        timeouts=Timeouts(start=0, stall=0),
        options=options,
        container=containers.of(options, options.mpi_image, options.mpi_shm_size),
        nodes=nodes,
        processes=processes,
        mpi=program(options, addresses.network(places, records), processes, nodes, counts),
    )
    return plan.replaced(
        processes=[_equipped(process, plan, gpu_lists[process.host]) for process in processes]
    )


def _node(place: Place, record: NodeRecord, job: str, options: MpiOptions) -> Node:
    """Return a node of the plan. An image has the CUDA of the program."""
    if options.runtime != HOST:
        return node_of(place, record, job).replaced(mounts=containers.mounts(options.data_dir))
    return node_of(place, record, job).replaced(cuda=record.cuda)


def program(
    options: MpiOptions,
    network: str,
    processes: Sequence[Process],
    nodes: Mapping[str, Node],
    counts: Sequence[int],
) -> MpiProgram:
    """Return the program of the job.

    Args: `network` of `addresses.network`; `counts` the number of MPI processes at each of
    `processes`.
    """
    return MpiProgram(
        command=options.mpi_command,
        runtime="" if options.mpi_runtime == "auto" else options.mpi_runtime,
        pre_execution=options.mpi_pre_execution_command,
        coordination=options.mpi_coordination_command,
        infiniband=None if options.mpi_infiniband == "auto" else bool(options.mpi_infiniband),
        network=network,
        hosts=[
            MpiHost(
                host=process.host,
                name=process.name,
                address=process.address,
                port=process.port,
                interface=nodes[process.host].interface,
                processes=count,
            )
            for process, count in zip(processes, counts)
        ],
    )


def _equipped(process: Process, plan: Plan, numbers: List[int]) -> Process:
    """Return `process` with its GPUs, folder, command and environment."""
    known = process.replaced(gpus=numbers, folder=posixpath.join(OWN_FOLDERS, process.name))
    python = containers.python(plan.options, plan.nodes[process.host])
    command = [python, "-u", "-m", PROGRAM, "run" if process.role == MPIRUN else "serve"]
    work_dir = posixpath.join(plan.nodes[process.host].job_dir, known.folder or "")
    more, own = {"MXCLUSTER_WORK_DIR": work_dir}, _options(plan.options).mpi_env
    # The processes of the MPI program on the same node inherit these variables.
    return known.replaced(command=command, env=of_any(known, plan, more, own))


def instances(hosts: List[str], options: MpiOptions) -> List[str]:
    """Return the hosts of the job: the first mpi_num_instances of `hosts`, or all of `hosts`.

    Raises BadInput if `hosts` has too few hosts.

    Args: `hosts` the hosts of the group workers; `options` with the typed knob mpi_num_instances.
    """
    if not hosts:
        raise BadInput("the group workers has no host: put at least one host into this group")
    knob = options.mpi_num_instances
    if isinstance(knob, str):
        return hosts
    if knob > len(hosts):
        raise BadInput(
            "mpi_num_instances=%d, but the group workers has only %s (%s): give at most "
            "%d, or all, or add hosts to the group"
            % (knob, several(len(hosts), "node"), ", ".join(hosts), len(hosts))
        )
    return hosts[:knob]


def lay_out(hosts: Sequence[str], nodes: Mapping[str, Node]) -> List[Process]:
    """Return the processes of the job, one on each host.

    Each process listens on the port FIRST at the address of the node, so that the rendezvous can
    test the network in both directions. In a job with one node, the port is None.
    """
    return [
        Process(
            name="node-%d" % index if index else MPIRUN,
            role=NODE if index else MPIRUN,
            index=index or None,
            host=host,
            address=nodes[host].address,
            port=ports.FIRST if len(hosts) > 1 else None,
        )
        for index, host in enumerate(hosts)
    ]


def _processes(host: str, numbers: List[int], options: MpiOptions) -> int:
    """Return the number of MPI processes on `host`.

    Args: `numbers` the GPU numbers of the job on this host; `options` the typed MPI knobs.
    """
    knob = options.mpi_processes_per_node
    if knob != "gpus":
        return int(knob)
    if not numbers:
        raise BadInput(
            "%s: mpi_processes_per_node=gpus, but the job has no GPU on this node: use a number, "
            "leave the node out with -e without=%s, or correct mpi_gpus" % (host, host)
        )
    return len(numbers)


def table(plan: Plan) -> str:
    """Return the plan of an MPI program as text, with a line for each node."""
    options = _options(plan.options)
    counts = (several(plan.workers, "process", "processes"), several(len(plan.nodes), "node"))
    engine = "of mpirun in the PATH of the nodes"
    lines = [
        "job %s" % plan.job,
        "MPI program in %s on %s: %s" % (counts + (options.mpi_command,)),
        "engine %s" % (engine if options.mpi_runtime == "auto" else options.mpi_runtime),
    ]
    lines += containers.lines(plan)
    lines += [
        "%s: %s" % (title, text)
        for title, text in (
            ("before mpirun and its daemons", options.mpi_pre_execution_command),
            ("once on each node", options.mpi_coordination_command),
            ("files for each node", ", ".join(map(os.path.basename, options.mpi_resource_files))),
        )
        if text
    ]
    rows = [("process", "host", "address:port", "interface", "GPUs", "MPI processes")]
    rows += [
        (
            process.name,
            process.host,
            process.address + ("" if process.port is None else ":%d" % process.port),
            one.interface,
            ",".join(map(str, process.gpus)) or "-",
            str(one.processes),
        )
        for process, one in zip(plan.processes, plan.mpi.hosts if plan.mpi else ())
    ]
    lines += ["", *aligned(rows)]
    return "\n".join(lines) + "\n"
