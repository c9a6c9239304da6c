"""Make the plan of a job of mpi.yml, which runs an MPI program.

The plan has the same entries as the plan of a training. The entries about servers, groups and
shares are empty. On the first node, a process with the role mpirun runs mpirun. On each other node,
a process with the role node runs the daemon of mpirun. See `mxcluster.node.mpi_job`.
"""

import os
import posixpath
from typing import Any, Dict, List, Mapping, Optional

from mxcluster.environment import GPU_ORDER
from mxcluster.errors import BadInput, for_each, refuse, shown
from mxcluster.job.options import LOADER_VARIABLES, is_own
from mxcluster.job.plan import addresses, containers, gpus, members, ports
from mxcluster.job.plan_shape import KIND
from mxcluster.lists import aligned, several, unique
from mxcluster.model.host_variables import of_hosts
from mxcluster.model.job_knobs import HOST, MpiOptions, MpiProgram, Options
from mxcluster.model.knob import MPI, names_read, read
from mxcluster.model.names import is_job_id
from mxcluster.model.node_record import NodeRecord
from mxcluster.package import OWN_FOLDERS

Json = Dict[str, Any]

# The knobs of train.yml that mpi.yml reads, too, and all knobs of mpi.yml.
OF_TRAIN = names_read(Options, MPI)
KNOBS = names_read(MpiOptions, MPI)
PROGRAM = "mxcluster.node.mpi_job"


def cast(given: Mapping[str, object]) -> MpiProgram:
    """Return the knobs of an MPI program. BadInput lists all wrong values.

    Args: `given` {name: value} from the user; the function ignores the names of other knobs.
    """
    own = {name: value for name, value in given.items() if name in MpiProgram.FIELDS}
    # The shape refuses an empty command, so that a missing mpi_command raises BadInput.
    options = read(MpiProgram, dict({"mpi_command": ""}, **own))
    refuse(
        "mpi_env: %s=%s is refused: %s"
        % (
            name,
            shown(text),
            "mxcluster sets %s itself. Remove this variable" % name
            if is_own(name)
            else "mxcluster's own processes would get this variable. Set the variable in "
            "mpi_pre_execution_command, as export %s=..." % name,
        )
        for name, text in sorted(options.mpi_env.items())
        if is_own(name) or name in LOADER_VARIABLES
    )
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


def make_plan(
    options: MpiOptions,
    inventory: Json,
    records: Mapping[str, NodeRecord],
    job: str,
    held: Optional[ports.Held] = None,
) -> Json:
    """Return the plan of an MPI job as a dict. BadInput lists all faults of the input.

    Args:
        options: the MPI knobs and all knobs of train.yml. Knobs of
            train.yml outside OF_TRAIN have their defaults.
        inventory: as for `plan.make_plan`.
        records: {host: node record}.
        job: the id of the job.
        held: {host: ports and GPUs in use}. With None, all ports and GPUs count as free.
    """
    if not is_job_id(job):
        raise BadInput(
            "job_id='%s' is refused: use at most 100 letters, digits, '.', '_' and '-', beginning "
            "with a letter or digit" % job
        )

    def find(host: str) -> addresses.Node:
        return addresses.locate(host, variables[host], records.get(host), options.dmlc_interface)

    hosts = instances(unique(inventory["groups"].get("workers") or []), options)
    variables = of_hosts(hosts, inventory["hosts"])
    members.check_forks(hosts, int(inventory["forks"]))
    found = for_each(find, hosts)
    addresses.check_distinct(found)
    addresses.check_loopback(found, records)
    members.check_provisioned(hosts, records)
    nodes = {
        node.host: {
            "address": node.address,
            "interface": node.interface,
            "job_dir": posixpath.join(records[node.host].job_dir, job),
            "python": records[node.host].python,
            "build": records[node.host].target,
        }
        for node in found
    }
    check_image(options)
    containers.check_units(options.runtime, hosts, variables)
    for host in nodes:
        if options.runtime != HOST:  # its image has the CUDA of the program
            nodes[host]["mounts"] = containers.mounts(options.data_dir)
            continue
        cuda = records[host].cuda
        if cuda:
            nodes[host]["cuda"] = cuda.encode()
    gpu_lists = dict(zip(hosts, gpus.per_worker(hosts, options.mpi_gpus, variables, records, held)))
    counts = for_each(lambda host: _processes(host, gpu_lists[host], options), hosts)
    laid_out = lay_out(hosts, nodes, ports.FIRST)
    port = ports.root_port(options.root_port, laid_out, held or {})
    processes = lay_out(hosts, nodes, port)
    plan: Json = {
        "schema": 1,
        "job": job,
        "kv": KIND,
        "lease": 0 if options.detach else options.lease,
        "workers": sum(counts),
        "servers": 0,
        "heartbeat": {"interval": 1, "timeout": options.heartbeat_timeout},
        "timeouts": {"start": 0, "stall": 0},
        "root": None,
        "groups": [],
        "group_labels": [],
        "together": [],
        "shares": [],
        "placement": [],
        "staleness": None,
        "balance": None,
        "slowdowns": [],
        "files": {},
        "options": options,
        "container": containers.of(options, options.mpi_image, options.mpi_shm_size),
        "nodes": nodes,
        "ports_open": [],
        "processes": processes,
        "profile": None,
        "needs_profile": False,
        "mpi": {
            "command": options.mpi_command,
            "runtime": "" if options.mpi_runtime == "auto" else options.mpi_runtime,
            "pre_execution": options.mpi_pre_execution_command,
            "coordination": options.mpi_coordination_command,
            "infiniband": None if options.mpi_infiniband == "auto" else options.mpi_infiniband,
            "network": addresses.network(found, records),
            "hosts": [
                {
                    "host": process["host"],
                    "name": process["name"],
                    "address": process["address"],
                    "port": process["port"],
                    "interface": nodes[process["host"]]["interface"],
                    "processes": count,
                }
                for process, count in zip(processes, counts)
            ],
        },
    }
    for process in processes:
        process["gpus"] = gpu_lists[process["host"]]
        process["folder"] = posixpath.join(OWN_FOLDERS, process["name"])
        process["command"] = command(process, containers.python(options, nodes[process["host"]]))
        process["env"] = environment(process, plan)
    return plan


def instances(hosts: List[str], options: MpiOptions) -> List[str]:
    """Return the hosts of the job: the first mpi_num_instances of `hosts`, or all of `hosts`.

    BadInput if `hosts` has too few hosts.

    Args: `hosts` the hosts of the group workers; `options` with the typed knob mpi_num_instances.
    """
    if not hosts:
        raise BadInput("the group workers has no host: put at least one host into this group")
    wanted = options.mpi_num_instances
    if isinstance(wanted, str):
        return hosts
    if wanted > len(hosts):
        raise BadInput(
            "mpi_num_instances=%d, but the group workers has only %s (%s): give at most "
            "%d, or all, or add hosts to the group"
            % (wanted, several(len(hosts), "node"), ", ".join(hosts), len(hosts))
        )
    return hosts[:wanted]


def lay_out(hosts: List[str], nodes: Dict[str, Json], port: int) -> List[Json]:
    """Return the processes of the job as a list of dicts, one process on each host.

    The dicts have the entries of `processes.lay_out`. Each process listens on `port` at the address
    of the node, so that the rendezvous can test the network in both directions. In a job with one
    node, the port is None.
    """
    return [
        {
            "name": "node-%d" % index if index else "mpirun",
            "role": "node" if index else "mpirun",
            "index": index or None,
            "host": host,
            "address": nodes[host]["address"],
            "port": port if len(hosts) > 1 else None,
            "gpus": [],
            "work_load": [],
            "group": None,
            "share": None,
        }
        for index, host in enumerate(hosts)
    ]


def command(process: Json, python: str) -> List[str]:
    """Return the command line of `process`, which the program `python` runs, as a list."""
    return [python, "-u", "-m", PROGRAM, "run" if process["role"] == "mpirun" else "serve"]


def environment(process: Json, plan: Json) -> Dict[str, str]:
    """Return {variable: value} of the environment of `process`.

    The processes of the MPI program on the same node inherit these variables.
    """
    node = plan["nodes"][process["host"]]
    env = {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, process["gpus"])),
        **GPU_ORDER,
        "MXCLUSTER_JOB": plan["job"],
        "MXCLUSTER_ROLE": process["role"],
        "MXCLUSTER_HOST": process["host"],
        "MXCLUSTER_JOB_DIR": node["job_dir"],
        "MXCLUSTER_WORK_DIR": posixpath.join(node["job_dir"], process["folder"]),
    }
    libraries = [node["cuda"]["folder"] + "/lib64"] if node.get("cuda") else []
    own = plan["options"].mpi_env
    libraries += [own["LD_LIBRARY_PATH"]] if "LD_LIBRARY_PATH" in own else []
    return dict(env, **dict(own, **({"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {})))


def _processes(host: str, numbers: List[int], options: MpiOptions) -> int:
    """Return the number of MPI processes on `host`.

    Args: `numbers` the GPU numbers of the job on this host; `options` the typed MPI knobs.
    """
    wanted = options.mpi_processes_per_node
    if wanted != "gpus":
        return int(wanted)
    if not numbers:
        raise BadInput(
            "%s: mpi_processes_per_node=gpus, but the job has no GPU on this node: use a number, "
            "leave the node out with -e without=%s, or correct mpi_gpus" % (host, host)
        )
    return len(numbers)


def table(plan: Json) -> str:
    """Return the plan of an MPI job as text: program, engine, then a line for each node."""
    spec = plan["mpi"]
    lines = [
        "job %s" % plan["job"],
        "MPI program in %s on %s: %s"
        % (
            several(plan["workers"], "process", "processes"),
            several(len(plan["nodes"]), "node"),
            spec["command"],
        ),
        "engine %s" % (spec["runtime"] or "of mpirun in the PATH of the nodes"),
    ]
    lines += containers.lines(plan)
    for title, text in (
        ("before mpirun and its daemons", spec["pre_execution"]),
        ("once on each node", spec["coordination"]),
    ):
        if text:
            lines.append("%s: %s" % (title, text))
    if plan["options"].mpi_resource_files:
        named = map(os.path.basename, plan["options"].mpi_resource_files)
        lines.append("files for each node: %s" % ", ".join(named))
    rows = [("process", "host", "address:port", "interface", "GPUs", "MPI processes")]
    rows += [
        (
            process["name"],
            process["host"],
            process["address"] + ("" if process["port"] is None else ":%d" % process["port"]),
            one["interface"],
            ",".join(map(str, process["gpus"])) or "-",
            str(one["processes"]),
        )
        for process, one in zip(plan["processes"], spec["hosts"])
    ]
    lines += ["", *aligned(rows)]
    return "\n".join(lines) + "\n"
