"""Define the launchers, one entry for each: how the agents of a job's nodes start. Pure.

A launcher differs from another in the start of the agents only. The plan, the processes, the polls
and the report are the same. These files read the table:

- `knob_table`: the values of the knob `launcher`;
- `plan`: which inventories fit, and what the plan's table says;
- `roles/train_job/tasks/main.yml`: the tasks that start the agents;
- `mxcluster.cli.launch_line`: the values of `--launcher`.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from mxcluster.errors import BadInput, refuse, some
from mxcluster.lists import grouped

Nodes = Dict[str, Dict[str, Any]]


class Launcher(NamedTuple):
    """What mxcluster has to know of a launcher.

    - `name`: the value of the knobs; `description`: how the agents start, for the pages;
    - `tasks`: the file in roles/train_job/tasks that starts the agents;
    - `engine`: the program of the site that starts the agents as the training user: without root,
      so without a systemd unit and without a firewall rule of mxcluster. "" without such a program;
    - `takes_hosts`: True if `mxcluster launch -H` may name the nodes;
    - `knobs`: the knobs that only this launcher reads in a training job.
    """

    name: str
    description: str
    tasks: str
    engine: str
    takes_hosts: bool
    knobs: Sequence[str]


SSH, LOCAL, MPI = "ssh", "local", "mpi"
LAUNCHERS = {
    launcher.name: launcher
    for launcher in (
        Launcher(
            name=SSH,
            description="over Ansible's connection",
            tasks="start.yml",
            engine="",
            takes_hosts=True,
            knobs=(),
        ),
        Launcher(
            name=LOCAL,
            description="on this machine, without SSH; a node that is another machine is refused",
            tasks="start.yml",
            engine="",
            takes_hosts=False,
            knobs=(),
        ),
        Launcher(
            name=MPI,
            description="one `mpirun` on the first node starts the agents of all nodes as the "
            "training user, without root",
            tasks="start_mpi.yml",
            engine="mpirun",
            takes_hosts=True,
            knobs=("mpi_runtime", "mpi_pre_execution_command"),
        ),
    )
}


def of(plan: Dict[str, Any]) -> Launcher:
    """Return the launcher of a plan. MPI programs, and plans of older versions, start over ssh."""
    return LAUNCHERS[plan.get("launcher") or SSH]


def refuse_unread(launcher: str, anew: Sequence[str]) -> None:
    """Raise BadInput if a name of `anew`, the knobs of -e, belongs to another launcher.

    In the inventory such a knob is allowed: there it describes the site.
    """
    refuse(
        "-e %s: launcher=%s does not read it, only launcher=%s does: leave it out, or use -e "
        "launcher=%s" % (name, launcher, other.name, other.name)
        for other in LAUNCHERS.values()
        for name in other.knobs
        if other.name != launcher and name in anew and name not in LAUNCHERS[launcher].knobs
    )


def check(launcher: str, nodes: Nodes, variables: Dict[str, Dict[str, Any]]) -> None:
    """Raise BadInput if the nodes of a job do not fit its launcher.

    Args: `nodes` {host: {"address", "job_dir", "python"}} of the plan; `variables` {host: its host
    variables}, of which `ansible_connection` counts.
    """
    here = [
        host for host in nodes if (variables.get(host) or {}).get("ansible_connection") == "local"
    ]
    if launcher == LOCAL:
        away = [host for host in nodes if host not in here]
        refuse(
            [
                "launcher=local runs all processes on this machine, and Ansible reaches %s over "
                "ssh: leave -i out for the cluster on this machine (inventory/local), or use "
                "another launcher" % some(away)
            ]
            if away
            else []
        )
    if launcher == MPI:
        if here:
            raise BadInput(
                "launcher=mpi starts one agent on each machine over ssh, and these nodes are this "
                "machine (ansible_connection: local): %s; use launcher=local" % some(here)
            )
        refuse(
            _same(nodes, "python", "mxcluster_env_dir")
            + _same(nodes, "job_dir", "mxcluster_job_dir")
        )


def _same(nodes: Nodes, key: str, variable: str) -> List[str]:
    """Return a problem if `key` has different values: mpirun runs one command on all nodes."""
    found = grouped((nodes[host][key], host) for host in nodes)
    if len(found) < 2:
        return []
    return [
        "launcher=mpi runs the same command on all nodes, and their paths differ (%s): set the "
        "same %s for these nodes, and run provision.yml"
        % ("; ".join("%s: %s" % (value, some(found[value])) for value in found), variable)
    ]


def mpi_request(options: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Return the request of `mpi_installation.look` for a training, None without an MPI engine.

    Args: `options` the options of the plan.
    """
    if options["launcher"] != MPI:
        return None
    return {
        "runtime": "" if options["mpi_runtime"] == "auto" else options["mpi_runtime"],
        "pre_execution": options["mpi_pre_execution_command"],
        "infiniband": False,
        "env": {},
    }


def told(plan: Dict[str, Any]) -> List[str]:
    """Return the lines of the plan's table about the launcher and the ports of the job."""
    launcher, open_hosts = of(plan), plan.get("ports_open") or []
    lines = []
    if launcher.engine:
        lines.append(
            "launcher %s: one %s on %s starts the agents as the training user, without root and "
            "without systemd units" % (launcher.name, launcher.engine, next(iter(plan["nodes"])))
        )
    if open_hosts:
        lines.append(
            "ports: open to every host that can reach %s: jobs run without root there (%s)"
            % (
                some(open_hosts),
                "launcher=%s" % launcher.name if launcher.engine else "mxcluster_user is empty",
            )
        )
    return lines
