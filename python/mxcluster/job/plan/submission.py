"""Plan a job of a batch system, such as Slurm. The nodes are known only when the job starts.

The controller makes a submission with `submission`. A submission is a plan without processes, and
its only node is the submit host. The head is the main program on the first node of
the job (`mxcluster.batch.head`). The head makes the plan with `complete`, which calls the same
`make_plan` as the controller does for other launchers.
"""

import ipaddress
import posixpath
from typing import List, Mapping, Optional, Sequence, Tuple, Union

from mxcluster.cluster.driver import restart_reason
from mxcluster.cluster.pairs import cuda_of
from mxcluster.errors import BadInput, did_you_mean, refuse
from mxcluster.job.plan import Inputs, make_plan, processes
from mxcluster.job.plan.ports import FIRST, Held
from mxcluster.launchers import LAUNCHERS
from mxcluster.lists import several
from mxcluster.model.host_variables import of_host, of_hosts
from mxcluster.model.inventory import Inventory
from mxcluster.model.job_knobs import Options
from mxcluster.model.names import MOST_CPU
from mxcluster.model.node_record import Core, NodeFacts, NodeRecord
from mxcluster.model.plan import Node, Plan
from mxcluster.model.submission import NODES, SharedFacts, Submission

# Each job begins its search for ports in one of RANGES ranges, SPREAD ports apart.
SPREAD, RANGES = 64, 300
NETWORK = "10.0.0.0/8"  # of the nodes in `rehearse`
# The host variables of the submit host that all nodes of the job get.
COMMON = ("workers_per_host", "servers_per_host", "gpus", "gpu_speeds", "cpus", "cluster_network")


def submit_host(options: Options, groups: Mapping[str, List[str]]) -> str:
    """Return the host that submits the job: submit_host, or the host of the group scheduler.

    Raises BadInput if the inventory lacks the host.

    Args: `options` the typed knobs; `groups` {name: hosts} of the inventory.
    """
    known = [host for group in ("scheduler", "servers", "workers") for host in groups[group]]
    name = options.submit_host or next(iter(groups["scheduler"]), "")
    if name in known:
        return str(name)
    if not name:
        raise BadInput(
            "launcher=%s needs a submit host: put a host with the client of %s into the group "
            "scheduler, or name a host of the inventory with -e submit_host="
            % (options.launcher, LAUNCHERS[options.launcher].title)
        )
    raise BadInput(
        "submit_host=%s is not in the inventory%s: name one of %s"
        % (
            name,
            did_you_mean(name, known),
            ", ".join(dict.fromkeys(known)) or "its hosts (it has none)",
        )
    )


def submission(inputs: Inputs) -> Tuple[Plan, Submission]:
    """Return the submission of a job, from which the head makes the plan, and its request.

    Raises BadInput if the submit host is unknown or has no node record, and for all faults that
    show without the nodes.
    """
    options, variables = inputs.options, inputs.inventory.hosts
    host = submit_host(options, inputs.inventory.groups)
    record, python = _record_of_submit_host(host, inputs.records.get(host))
    common = {name: value for name, value in (variables.get(host) or {}).items() if name in COMMON}
    # All hosts of the inventory may become nodes.
    of_hosts([host] + sorted(set(variables) - {host}), variables)
    request = Submission(
        launcher=options.launcher,
        nodes=options.num_nodes,
        queue=options.queue,
        environment=options.parallel_environment,
        time=options.time_limit,
        gres=options.gres,
        options=options.engine_options,
        common=common,
        # A node that has the name of a host in the inventory gets the variables of this host.
        own=variables,
        shared=SharedFacts(
            python=python,
            job_dir=record.job_dir,
            data_dir=record.data_dir,
            target=record.target,
            cuda=record.cuda,
        ),
        model_file=inputs.model_file,
        checkpoint=inputs.checkpoint,
    )
    job_dir = posixpath.join(record.job_dir, inputs.job)
    plan = Plan(
        job=inputs.job,
        kv=options.kv,
        lease=0 if options.detach else options.lease,
        launcher=options.launcher,
        options=options,
        nodes={host: Node(job_dir=job_dir, python=python, build=record.target)},
        processes=[],
        batch=request,
    )
    # `rehearse` needs no other host variable: labels, weights and addresses of the nodes cannot
    # make its refusals wrong.
    if all(
        (own or {}).get(name, common.get(name)) == common.get(name)
        for own in variables.values()
        for name in COMMON
    ):
        rehearse(plan, request, record)
    elif not options.script:
        processes.check_network(options.network, host, record)
    return plan, request


def _record_of_submit_host(host: str, record: Optional[NodeRecord]) -> Tuple[NodeRecord, str]:
    """Return the node record of the submit host, and its Python. Refuse a missing record."""
    if record is None:
        raise BadInput("%s: the submit host has no node record: run provision.yml" % host)
    record.refuse_damaged()
    if not record.python:
        raise BadInput(
            "%s: another version of mxcluster has provisioned the submit host: run provision.yml"
            % host
        )
    return record, record.python


def rehearse(plan: Plan, request: Submission, record: NodeRecord) -> None:
    """Make the plan of the submission `plan` on nodes that are like the submit host.

    So the controller refuses before the submission what the head would refuse after the queue. The
    nodes may have other addresses and other numbers of GPUs, so each address and each number fits.

    Args: `request` of `plan`; `record` the node record of the submit host, whose environment all
    nodes share.
    """
    options, host = plan.options, next(iter(plan.nodes))
    variables = of_host(host, request.common)
    named = [
        number
        for numbers in (options.gpus, variables.gpus)
        if not isinstance(numbers, str)
        for number in numbers
    ]
    cpus = options.cpus or variables.cpus
    hosts = ["node %d of the job" % number for number in range(1, options.num_nodes + 1)]
    try:
        network = ipaddress.IPv4Network(variables.cluster_network or NETWORK, strict=False)
    except ValueError:  # `make_plan` refuses the network
        network = ipaddress.IPv4Network(NETWORK)
    if network.num_addresses - 2 < len(hosts):
        raise BadInput(
            "%s: cluster_network=%s has fewer addresses than num_nodes=%d: correct one of them"
            % (host, network, len(hosts))
        )
    facts = {
        name: NodeFacts(
            address_of_default_route=str(network[number]),
            interfaces={"eth0": ["%s/%d" % (network[number], network.prefixlen)]},
            gpus=len(variables.gpu_speeds) or max(named, default=-1) + 1,
            cores=[Core(cpus=[number]) for number in range(MOST_CPU + 1)] if cpus else None,
            python_version=record.python_version,
            mxnet=record.mxnet,
            numpy=record.numpy,
            model_zoo=record.model_zoo,
        )
        for number, name in enumerate(hosts, 1)
    }
    without_interface = plan.replaced(options=options.replaced(dmlc_interface=""))
    complete(without_interface, request, hosts, facts)


def table(plan: Plan, request: Submission) -> str:
    """Return the submission `plan` with its `request` as text, for -e plan_only=true."""
    host, name = next(iter(plan.nodes)), LAUNCHERS[plan.launcher].title
    resources = [several(request.nodes, "node")] + [
        "%s %s" % (word, value)
        for word, value in (
            ("queue", request.queue),
            ("parallel environment", request.environment),
            ("time limit", request.time),
            ("resources", request.gres),
        )
        if value
    ]
    return "\n".join(
        [
            "job %s (%s)" % (plan.job, plan.kv),
            "submitted to %s on %s: %s" % (name, host, ", ".join([*resources, *request.options])),
            "the first node that %s allocates makes the plan of ranks, hosts and ports" % name,
            "the submitting user owns the job: no systemd unit, no root and no firewall rule. The "
            "ports of the job are open to all hosts that reach the nodes, and the token of the job "
            "seals the rendezvous",
            "shared by all nodes: %s" % plan.nodes[host].job_dir,
        ]
    )


def first_port(number: str) -> int:
    """Return the port at which a job begins its search for free ports.

    Two jobs that start at the same time on one node see the same free ports. Their numbers differ,
    so the jobs search in different ranges.

    Args: `number` the id of the job in the batch system.
    """
    return FIRST + SPREAD * (int("".join(filter(str.isdigit, number)) or 0) % RANGES)


def complete(
    plan: Plan,
    request: Submission,
    hosts: Sequence[str],
    facts: Mapping[str, NodeFacts],
    held: Optional[Held] = None,
    number: str = "0",
) -> Plan:
    """Return the plan of a submitted job on its nodes. Raises BadInput with all faults.

    Args:
        plan: the result of `submission`.
        request: the request of `plan`.
        hosts: the nodes of the job. The first node runs the scheduler.
        facts: {host: the facts that its program reports}.
        held: as for `Inputs`.
        number: the id of the job in the batch system.
    """
    variables = {
        # An empty user means that jobs run without root, so that no firewall protects the ports.
        host: dict(request.common, **dict(request.own.get(host) or {}, mxcluster_user=""))
        for host in hosts
    }
    for host, own in variables.items():
        own_gpus = of_host(host, own).gpus
        own["gpus"] = _gpus(host, plan.options.gpus, own_gpus, facts[host].granted)
    refuse_waiting_drivers(request, facts)
    folder = posixpath.join(request.shared.job_dir, plan.job, NODES)
    return make_plan(
        Inputs(
            options=plan.options,
            inventory=Inventory(
                groups={"scheduler": [hosts[0]], "servers": list(hosts), "workers": list(hosts)},
                hosts=variables,
                forks=len(hosts),
            ),
            records={
                host: record_of(request, host, facts[host]).replaced(
                    job_dir=posixpath.join(folder, host)
                )
                for host in hosts
            },
            job=plan.job,
            model_file=request.model_file,
            held=held,
            checkpoint=request.checkpoint,
            first_port=first_port(number),
        )
    )


def refuse_waiting_drivers(request: Submission, facts: Mapping[str, NodeFacts]) -> None:
    """Refuse nodes with GPUs whose driver waits for a restart, if MXNet has a build for GPUs.

    Such nodes would train on the CPU. Args: `facts` {host: the facts that its program reports}.
    """
    if not cuda_of(request.shared.target):
        return
    reasons = {host: restart_reason(one.driver) for host, one in facts.items() if one.cards}
    refuse(
        "%s: %s, and only a restart can change this: restart this node, or exclude it with -e "
        "engine_options" % (host, why)
        for host, why in reasons.items()
        if why
    )


def record_of(request: Submission, host: str, facts: NodeFacts) -> NodeRecord:
    """Return the record of a node of the submitted job.

    It has the facts of the node, and the shared facts of the submit host.
    """
    return NodeRecord(host=host, **dict(vars(facts), **vars(request.shared)))


def _gpus(
    host: str,
    knob: Union[str, Sequence[int]],
    own: Union[str, List[int]],
    granted: Optional[Sequence[int]],
) -> Union[str, Sequence[int]]:
    """Return the GPUs of the job on `host`, as the value of the host variable `gpus`.

    Raises BadInput if the job names GPUs that the batch system has not given to it. `knob`: the
    knob `gpus`. `own`: the host variable `gpus`. `granted`: the GPUs that the batch system gives
    to the job, None if it says nothing.
    """
    if granted is None:
        return own
    named = own if knob == "auto" else knob
    if named == "auto":
        return granted
    foreign = [number for number in named if number not in granted]
    if foreign:
        raise BadInput(
            "%s: gpus=%s, but the batch system gives %s to the job: leave gpus at auto, and "
            "request GPUs with -e gres="
            % (
                host,
                ",".join(map(str, named)),
                "the GPUs " + ",".join(map(str, granted)) if granted else "no GPU",
            )
        )
    return own
