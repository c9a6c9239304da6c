"""Define the launchers, one entry for each: how the agents of a job's nodes start.

Launchers differ only in the start of the agents. The plan, the processes, the polls and the report
are the same. These files read the table:

- `knob_table`: the values of the knob `launcher`;
- `plan`: the inventories that fit, and the lines of the plan's table;
- `roles/train_job/tasks/main.yml`: the task file that starts the agents;
- `mxcluster.cli.launch_line`: the values of `--launcher`.

All functions are pure.
"""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from mxcluster.errors import BadInput, refuse, some
from mxcluster.lists import grouped
from mxcluster.model.host_variables import HostVariables
from mxcluster.model.plan import Node, Plan

Nodes = Mapping[str, Node]


class Launcher(NamedTuple):
    """The properties of a launcher.

    - `name`: the value of the knob `launcher`;
    - `title`: the name of the batch system in messages, "" for other launchers. A batch system
      chooses the nodes when the job starts, and the first node makes the plan;
    - `description`: how the agents start, for the pages;
    - `tasks`: the file in roles/train_job/tasks that starts the agents;
    - `engine`: the program of the site that starts the agents, "" without such a program. The
      engine starts the agents as the training user. So there is no root, no systemd unit and no
      firewall rule of mxcluster;
    - `takes_hosts`: True if `mxcluster launch -H` may name the nodes;
    - `knobs`: the knobs of a training job that only this launcher reads.
    """

    name: str
    title: str
    description: str
    tasks: str
    engine: str
    takes_hosts: bool
    knobs: Sequence[str]

    @property
    def is_batch(self) -> bool:
        """True for a batch system."""
        return bool(self.title)


SSH, LOCAL, MPI, SLURM, SGE = "ssh", "local", "mpi", "slurm", "sge"
_OF_BATCH = ("submit_host", "num_nodes", "queue", "time_limit", "gres", "engine_options")
LAUNCHERS = {
    launcher.name: launcher
    for launcher in (
        Launcher(
            name=SSH,
            title="",
            description="over Ansible's connection",
            tasks="start.yml",
            engine="",
            takes_hosts=True,
            knobs=(),
        ),
        Launcher(
            name=LOCAL,
            title="",
            description="on the controller's machine, without SSH. Other machines are refused",
            tasks="start.yml",
            engine="",
            takes_hosts=False,
            knobs=(),
        ),
        Launcher(
            name=MPI,
            title="",
            description="one `mpirun` on the first node starts the agents of all nodes as the "
            "training user, without root",
            tasks="start_mpi.yml",
            engine="mpirun",
            takes_hosts=True,
            knobs=("mpi_runtime", "mpi_pre_execution_command"),
        ),
        Launcher(
            name=SLURM,
            title="Slurm",
            description="`sbatch` requests the nodes, and `srun` starts the agents on the nodes",
            tasks="start.yml",
            engine="srun",
            takes_hosts=False,
            knobs=_OF_BATCH,
        ),
        Launcher(
            name=SGE,
            title="Grid Engine",
            description="`qsub` requests the nodes, and `qrsh` starts the agents on the nodes",
            tasks="start.yml",
            engine="qrsh",
            takes_hosts=False,
            knobs=_OF_BATCH + ("parallel_environment",),
        ),
    )
}


def of(plan: Plan) -> Launcher:
    """Return the launcher of a plan."""
    return LAUNCHERS[plan.launcher]


def refuse_unread(launcher: str, anew: Sequence[str]) -> None:
    """Raise BadInput if the user gave a knob of another launcher with -e.

    Such a knob is allowed in the inventory, because it describes the site there.

    Args: `launcher` the value of the knob; `anew` the names of the knobs given with -e.
    """
    readers = {name: [one.name for one in LAUNCHERS.values() if name in one.knobs] for name in anew}
    refuse(
        "-e %s: launcher=%s does not read this knob. Leave the knob out, or use -e launcher=%s"
        % (name, launcher, " or -e launcher=".join(names))
        for name, names in readers.items()
        if names and launcher not in names
    )


def check(launcher: str, nodes: Nodes, variables: Mapping[str, HostVariables]) -> None:
    """Raise BadInput if the nodes of a job do not fit the launcher.

    Args: `launcher` the value of the knob; `nodes` of the plan; `variables` {host: host variables}.
    Only `ansible_connection` counts.
    """
    here = [host for host in nodes if variables[host].ansible_connection == "local"]
    if launcher == LOCAL:
        away = [host for host in nodes if host not in here]
        refuse(
            [
                "launcher=local starts all processes on this machine, but Ansible reaches %s over "
                "ssh: leave -i out to use inventory/local, or choose another launcher" % some(away)
            ]
            if away
            else []
        )
    if launcher == MPI:
        if here:
            raise BadInput(
                "launcher=mpi starts one agent on each machine over ssh, but these nodes share "
                "this machine (ansible_connection: local): %s. Use launcher=local" % some(here)
            )
        refuse(
            _same(nodes, lambda node: node.python, "mxcluster_env_dir")
            + _same(nodes, lambda node: node.job_dir, "mxcluster_job_dir")
        )


def _same(nodes: Nodes, path: Callable[[Node], str], variable: str) -> List[str]:
    """Return [message] if the nodes have different values of `path`, else [].

    mpirun runs the same command on all nodes. `variable`: the variable of Ansible that sets `path`.
    """
    found = grouped((path(nodes[host]), host) for host in nodes)
    if len(found) < 2:
        return []
    return [
        "launcher=mpi runs the same command on all nodes, but the paths of the nodes differ (%s): "
        "set the same %s for these nodes, and run provision.yml"
        % ("; ".join("%s: %s" % (value, some(found[value])) for value in found), variable)
    ]


def mpi_request(options: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Return the request of `mpi_installation.look` for a training job, None without launcher=mpi.

    Args: `options` the typed knobs of the plan.
    """
    if options.get("launcher") != MPI:
        return None
    return {
        "runtime": "" if options["mpi_runtime"] == "auto" else options["mpi_runtime"],
        "pre_execution": options["mpi_pre_execution_command"],
        "infiniband": False,
        "env": {},
    }


def lines(plan: Plan) -> List[str]:
    """Return the lines of the plan's table about the launcher and the open ports of the job."""
    launcher, open_hosts = of(plan), plan.ports_open
    found = []
    if launcher.engine:
        found.append(
            "launcher %s: %s%s on %s starts the agents as the training user, without root and "
            "without systemd units"
            % (
                launcher.name,
                "" if launcher.is_batch else "one ",
                launcher.engine,
                next(iter(plan.nodes)),
            )
        )
    if open_hosts:
        found.append(
            "ports: open to every host that can reach %s, because jobs run without root on these "
            "hosts (%s)"
            % (
                some(open_hosts),
                "launcher=%s" % launcher.name if launcher.engine else "mxcluster_user is empty",
            )
        )
    return found
