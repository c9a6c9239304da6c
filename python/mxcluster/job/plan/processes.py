"""List the processes of a job with host, address, port, command and environment."""

import itertools
import posixpath
from collections import Counter
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from mxcluster import checkpoints, schemes
from mxcluster.datasets import DATASETS
from mxcluster.environment import BOUND, GPU_ORDER
from mxcluster.errors import BadInput, did_you_mean
from mxcluster.job.plan import containers
from mxcluster.job.plan.ports import FIRST
from mxcluster.model.job_knobs import NETWORKS, Options
from mxcluster.model.node_record import NodeFacts
from mxcluster.model.plan import SCHEDULER, SERVER, WORKER, Node, Plan, Process
from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.package import OWN_FOLDERS, SCRIPT_PLACE

HEARTBEAT_INTERVAL = 1


def lay_out(
    scheduler: Optional[str],
    servers: Sequence[str],
    workers: Sequence[str],
    nodes: Mapping[str, Node],
) -> List[Process]:
    """Return the processes with their addresses and ports: scheduler, servers, workers.

    At each address the first process gets the port FIRST, and each further process gets the next
    number. Without a scheduler (kv local, device), all ports are None.

    Args: `scheduler` the host of the scheduler, or None; `servers` and `workers` the host of each
    server and worker.
    """
    everyone = [(SCHEDULER, 0, scheduler)] if scheduler else []
    everyone += [(SERVER, index, host) for index, host in enumerate(servers)]
    everyone += [(WORKER, index, host) for index, host in enumerate(workers)]
    taken, result = Counter(), []  # type: Dict[str, int], List[Process]
    for role, index, host in everyone:
        address = nodes[host].address
        result.append(
            Process(
                name="%s-%d" % (role, index),
                role=role,
                index=index,
                host=host,
                address=address,
                port=FIRST + taken[address] if scheduler else None,
            )
        )
        taken[address] += 1
    return result


def servers_of(
    hosts: Sequence[str], kv: str, groups: Sequence[Sequence[int]]
) -> Tuple[List[str], int]:
    """Return (the host of each server process, the number of processes on each server).

    If the scheme `kv` has separate servers for each group, each server of the inventory runs one
    process for each group. Each process waits only for the workers of its group. Under another
    scheme each server runs one process.

    Args: `hosts` the host of each server of the inventory; `kv` the name of the scheme; `groups`
    lists of worker indices.
    """
    each = len(groups) if schemes.of(kv).servers_of_a_group else 1
    return [host for host in hosts for _ in range(each)], each


def ranks(servers: Sequence[Process]) -> List[int]:
    """Return the ps-lite rank of each server process in `servers`, in the order of `servers`.

    ps-lite (van.cc) sorts servers by address as text in descending order, then by rising port.
    """
    by_port = sorted(range(len(servers)), key=lambda one: servers[one].port or 0)
    # sorted() is stable, also in reverse, so ports of one address stay in ascending order.
    order = sorted(by_port, key=lambda one: servers[one].address, reverse=True)
    rank_of = {one: rank for rank, one in enumerate(order)}
    return [rank_of[one] for one in range(len(servers))]


def check_bound(options: Options, servers: int) -> None:
    """Refuse a bound for split arrays that would leave a server with an empty part of an array.

    MXNet cuts an array of this bound or more numbers into one part for each server process. MXNet
    cuts compressed gradients in units of 16 numbers, so each part needs at least 16 numbers.

    Args: `options` with bigarray_bound and env, which may hold the variable BOUND; `servers` the
    number of server processes.
    """
    bound = int(options.bigarray_bound or options.env.get(BOUND, 0))
    if bound and bound < 16 * servers:
        raise BadInput(
            "%s=%d is too small for %d server processes: a server would get an empty part of an "
            "array. Use at least %d, or fewer servers"
            % (
                "bigarray_bound" if options.bigarray_bound else "env: " + BOUND,
                bound,
                servers,
                16 * servers,
            )
        )


def check_network(network: str, host: str, record: NodeFacts) -> None:
    """Refuse a network that is unknown to the program and to the model zoo of the node's MXNet.

    Args: `record` the node record of `host`.
    """
    known = list(NETWORKS) + list(record.model_zoo)
    if network not in known:
        raise BadInput(
            "network='%s' is unknown to the program and to the model zoo of MXNet %s on %s%s: use "
            "one of %s, or a network of the model zoo"
            % (
                network,
                record.mxnet,
                host,
                did_you_mean(network, known),
                ", ".join(NETWORKS),
            )
        )


def own_folder(process: Process, options: Options) -> Optional[str]:
    """Return the path of a worker's copy of the script's folder; None for other processes.

    The path is relative to the job folder. Each worker of a host has a separate copy, so that
    workers cannot overwrite each other's files. The result is None in a job without a script.
    """
    if process.role != WORKER or not options.script:
        return None
    return posixpath.join(OWN_FOLDERS, process.name)


def command(process: Process, plan: Plan, arguments: Optional[ProgramArguments]) -> List[str]:
    """Return the command line that starts `process`, as a list.

    Args: `arguments` of the training program, which a worker without a script needs.
    """
    options, node = plan.options, plan.nodes[process.host]
    run = [containers.python(options, node), "-u", "-m", "mxcluster.training"]
    if process.role != WORKER:
        return run + ["serve"]
    if options.script:
        script = posixpath.join(node.job_dir, process.folder or "", _script_name(options))
        return run + ["script", script, "--"] + list(options.script_args)
    assert arguments
    return run + ["program", options.program, "--"] + arguments.command_line()


def _script_name(options: Options) -> str:
    """Return the path of the script in the folder that travels, such as scripts/train.py."""
    return posixpath.relpath(
        options.script, options.script_root or posixpath.dirname(options.script)
    )


def program_arguments(
    process: Process, options: Options, data_dir: str, model_file: Optional[str]
) -> ProgramArguments:
    """Return the arguments of the training program for the worker `process`.

    The GPUs count from 0, because CUDA_VISIBLE_DEVICES hides all other GPUs of the node.

    Args: `data_dir` the folder of the data set on the node; `model_file` the path of the saved
    model to start from.
    """
    values = {
        name: value for name, value in vars(options).items() if name in ProgramArguments.FIELDS
    }
    values.update(
        gpus=list(range(len(process.gpus))),
        work_load=process.work_load,
        data_dir=options.data_dir or ("" if DATASETS[options.data].from_data_dir else data_dir),
        model_load_file=model_file if options.model_load_epoch and model_file else "",
    )
    return ProgramArguments(**values)


def _group_of_each(groups: Sequence[Sequence[int]]) -> str:
    """Return the group number of each worker as text, in the order of the workers: "0,0,1"."""
    group_of = {index: number for number, members in enumerate(groups) for index in members}
    return ",".join(str(group_of[index]) for index in sorted(group_of))


def homes(plan: Plan) -> str:
    """Return the server of each parameter as text: "1*12,0*30" or, without a placement, "".

    In the example, server 1 holds the first 12 parameters, and server 0 the next 30 parameters.
    Under a scheme with separate servers for each group, the text has the server numbers of the
    placement. Under other schemes, the text has ps-lite ranks.
    """
    servers = plan.of_role(SERVER)
    by_group = schemes.of(plan.kv).servers_of_a_group
    rank = {} if by_group else dict(enumerate(ranks(servers)))
    runs = [(server, len(list(same))) for server, same in itertools.groupby(plan.placement)]
    return ",".join("%d*%d" % (rank.get(server, server), count) for server, count in runs)


def of_all(plan: Plan) -> Dict[str, str]:
    """Return the variables of mxcluster that are the same for all processes of `plan`.

    The function needs a time that grows with the number of processes.
    """
    options = plan.options
    env = {"MXCLUSTER_KV": plan.kv, "MXCLUSTER_GROUPS": _group_of_each(plan.groups)}
    scheme = schemes.of(plan.kv)
    if len(plan.groups) > 1 or not scheme.with_one_group:
        if scheme.servers_of_a_group:
            env["MXCLUSTER_SERVER_RANKS"] = ",".join(map(str, ranks(plan.of_role(SERVER))))
        for name in scheme.knobs:
            env["MXCLUSTER_" + name.upper()] = str(vars(options)[name])
    checkpoint = checkpoints.name_of(options.network, options.model_load_epoch)
    if_set = {
        "MXCLUSTER_PLACEMENT": homes(plan),
        "MXCLUSTER_SERVER_CLASSES": ",".join(options.server_classes),
        SCRIPT_PLACE: posixpath.dirname(_script_name(options)) if options.script else "",
        "MXCLUSTER_COMPRESSION": "" if options.compression == "none" else options.compression,
        BOUND: str(options.bigarray_bound or ""),
        # The servers of a script have nothing to restore.
        "MXCLUSTER_RESUME": checkpoint if options.resume and not options.script else "",
    }
    return dict(env, **{name: text for name, text in if_set.items() if text})


def environment(process: Process, plan: Plan, common: Dict[str, str]) -> Dict[str, str]:
    """Return the environment {variable: value} of `process` for ps-lite, mxcluster and the user.

    Args: `common` the result of `of_all`.
    """
    node, options = plan.nodes[process.host], plan.options
    env = dict(common, MXCLUSTER_INDEX=str(process.index))
    if process.group is not None:
        env["MXCLUSTER_GROUP"] = str(process.group)
    if process.share is not None:
        env["MXCLUSTER_SHARE"] = "%r %r" % process.share
        if options.data_dir:
            env["MXCLUSTER_DATA_DIR"] = options.data_dir
        if options.script:
            env["MXCLUSTER_CHECKPOINTS"] = posixpath.join(
                node.job_dir, checkpoints.SAVED, process.name
            )
        if process.work_load:
            env["MXCLUSTER_WORK_LOAD"] = ",".join("%.12g" % speed for speed in process.work_load)
    env.update(_of_ps_lite(process, plan, node.interface))
    return of_any(process, plan, env, options.of_role(process.role))


def of_any(
    process: Process, plan: Plan, more: Mapping[str, str], own: Mapping[str, str]
) -> Dict[str, str]:
    """Return the environment of a process of any job.

    Args: `more` further variables of mxcluster; `own` the variables of the user.
    """
    node = plan.nodes[process.host]
    env = {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, process.gpus)),
        **GPU_ORDER,
        "MXCLUSTER_JOB": plan.job,
        "MXCLUSTER_ROLE": process.role,
        "MXCLUSTER_HOST": process.host,
        "MXCLUSTER_JOB_DIR": node.job_dir,
        **more,
        **own,
    }
    # For servers, too: MXNet's GPU library needs CUDA's libraries. The user's libraries come last.
    if node.cuda:
        libraries = [node.cuda.folder + "/lib64", own.get("LD_LIBRARY_PATH")]
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
    return env


def _of_ps_lite(process: Process, plan: Plan, interface: str) -> Dict[str, str]:
    """Return the variables for ps-lite, {} for a job without a scheduler."""
    if not plan.root:
        return {}
    workers = plan.workers
    # A server process of a group merges as soon as all members of this group have pushed.
    if process.role == SERVER and process.group is not None:
        workers = len(plan.groups[process.group])
    return {
        "DMLC_ROLE": process.role,
        "DMLC_PS_ROOT_URI": plan.root.address,
        "DMLC_PS_ROOT_PORT": str(plan.root.port),
        "DMLC_NUM_SERVER": str(plan.servers),
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NODE_HOST": process.address,
        "DMLC_INTERFACE": interface,
        "PORT": str(process.port),
        "PS_VERBOSE": str(plan.options.ps_verbose),
        "PS_HEARTBEAT_INTERVAL": str(plan.heartbeat.interval),
        "PS_HEARTBEAT_TIMEOUT": str(plan.heartbeat.timeout),
        "MXCLUSTER_START_TIMEOUT": "%g" % plan.timeouts.start,
    }
