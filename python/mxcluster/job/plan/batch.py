"""Plan a job of a batch system, whose nodes are known only when the job starts.

The controller makes a submission with `submission`. It has the shape of a plan with one node, the
submit host, and without processes. The head, which is the main program on the first node, then
makes the plan with `complete`, by the same code as the controller for other launchers.
"""

import posixpath
from typing import Any, Dict, List, Optional, Sequence

from mxcluster.errors import BadInput
from mxcluster.job.plan import make_plan
from mxcluster.job.plan.ports import FIRST

Json = Dict[str, Any]

SPREAD, RANGES = 64, 300  # ports from one job's first port to the next one's; distinct jobs
# The folder in the job folder with a folder for each node.
NODES = "nodes"
# Variables of the submit host that hold for all nodes of the job.
COMMON = ("workers_per_host", "servers_per_host", "gpus", "gpu_speeds", "cluster_network")
ENGINES = {"slurm": "Slurm", "sge": "Grid Engine"}


def submit_host(options: Json, groups: Dict[str, List[str]]) -> str:
    """Return the host that submits the job: submit_host, or the host of the group scheduler.

    BadInput if the inventory has no such host.
    """
    known = [host for group in ("scheduler", "servers", "workers") for host in groups[group]]
    wanted = options["submit_host"] or next(iter(groups["scheduler"]), "")
    if wanted in known:
        return str(wanted)
    if not wanted:
        raise BadInput(
            "launcher=%s needs a submit host: put the host that has the client of %s into the "
            "group scheduler, or name a host of the inventory with -e submit_host="
            % (options["launcher"], ENGINES[options["launcher"]])
        )
    raise BadInput(
        "submit_host=%s is not in the inventory: name one of %s"
        % (wanted, ", ".join(dict.fromkeys(known)) or "its hosts (it has none)")
    )


def submission(
    options: Json,
    inventory: Json,
    records: Dict[str, Json],
    job: str,
    model_file: Optional[str] = None,
    checkpoint: Optional[Json] = None,
) -> Json:
    """Return the submission of a job: what the submit host and the head need to know.

    Args: as those of `make_plan`. BadInput if the submit host is unknown or not provisioned.
    """
    host = submit_host(options, inventory["groups"])
    record = records.get(host)
    if not record or not record.get("python"):
        raise BadInput("%s: the submit host has no record: run provision.yml" % host)
    variables = inventory["hosts"]
    common = {name: value for name, value in (variables.get(host) or {}).items() if name in COMMON}
    return {
        "schema": 1,
        "job": job,
        "kv": options["kv"],
        "lease": 0 if options["detach"] else options["lease"],
        "root": None,
        "options": options,
        "nodes": {
            host: {
                "address": None,
                "interface": None,
                "job_dir": posixpath.join(record["job_dir"], job),
                "python": record["python"],
                "build": str(record.get("target") or ""),
            }
        },
        "processes": [],
        "files": {},
        "workers": 0,
        "servers": 0,
        "groups": [],
        "group_labels": [],
        "shares": [],
        "together": [],
        "balance": None,
        "slowdowns": [],
        "ports_open": [],
        "profile": None,
        "needs_profile": False,
        "batch": {
            "launcher": options["launcher"],
            "nodes": options["num_nodes"],
            "queue": options["queue"],
            "environment": options["parallel_environment"],
            "time": options["time_limit"],
            "gres": options["gres"],
            "options": options["engine_options"],
            "common": common,
            # A node with the name of a host of the inventory has its host variables, too.
            "own": variables,
            # The nodes have the paths of the submit host, because they share its folder.
            "record": {
                name: record.get(name)
                for name in ("python", "job_dir", "data_dir", "target", "cuda", "bus")
            },
            "model_file": model_file,
            "checkpoint": checkpoint,
        },
    }


def table(plan: Json) -> str:
    """Return the submission `plan` as lines of text, as `-e plan_only=true` shows it."""
    wanted, host = plan["batch"], next(iter(plan["nodes"]))
    name = ENGINES[wanted["launcher"]]
    asked = ["%d node%s" % (wanted["nodes"], "" if wanted["nodes"] == 1 else "s")] + [
        "%s %s" % (word, wanted[key])
        for word, key in (
            ("queue", "queue"),
            ("parallel environment", "environment"),
            ("time limit", "time"),
            ("resources", "gres"),
        )
        if wanted[key]
    ]
    return "\n".join(
        [
            "job %s (%s)" % (plan["job"], plan["kv"]),
            "submitted to %s on %s: %s" % (name, host, ", ".join(asked + wanted["options"])),
            "the plan of ranks, hosts and ports is made on the first node that %s gives" % name,
            "the submitting user owns the job: no unit, no root and no firewall rule; the job's "
            "ports are open to all hosts that reach the nodes, and its token seals the rendezvous",
            "shared by all nodes: %s" % plan["nodes"][host]["job_dir"],
        ]
    )


def first_port(number: str) -> int:
    """Return where the job `number` of a batch system begins its search for ports.

    Two jobs that start at the same moment on one node see the same free ports. Their numbers
    differ, so they search in different ranges.
    """
    return FIRST + SPREAD * (int("".join(filter(str.isdigit, number)) or 0) % RANGES)


def complete(
    plan: Json,
    hosts: Sequence[str],
    facts: Dict[str, Json],
    held: Optional[Json] = None,
    number: str = "0",
) -> Json:
    """Return the plan of a submitted job on its nodes, or raise BadInput.

    Args: `plan` of `submission`; `hosts` the nodes, the first one with the scheduler; `facts`
    {host: the facts of `mxcluster.node.probe.record`}; `held` see `make_plan`; `number` the
    batch system's id of the job.
    """
    wanted = plan["batch"]
    record = wanted["record"]
    variables = {
        # Without root no firewall protects the ports, and the plan says so for an empty user.
        host: dict(wanted["common"], **dict(wanted["own"].get(host) or {}, mxcluster_user=""))
        for host in hosts
    }
    job_dir = posixpath.join(record["job_dir"], plan["job"], NODES)
    made = make_plan(
        plan["options"],
        {
            "groups": {"scheduler": [hosts[0]], "servers": list(hosts), "workers": list(hosts)},
            "hosts": variables,
            "forks": len(hosts),
        },
        {host: dict(facts[host], **record) for host in hosts},
        {},
        plan["job"],
        job_dirs={host: posixpath.join(job_dir, host) for host in hosts},
        data_dirs=dict.fromkeys(hosts, record["data_dir"]),
        model_file=wanted["model_file"],
        held=held,
        checkpoint=wanted["checkpoint"],
        first_port=first_port(number),
    )
    return dict(made, launcher=wanted["launcher"])
