"""Check a job against the table of launchers, and describe its launcher. All functions are pure."""

from typing import Callable, List, Mapping, Sequence

from mxcluster.errors import BadInput, refuse, some
from mxcluster.launchers import LAUNCHERS, LOCAL, MPI
from mxcluster.lists import grouped
from mxcluster.model.host_variables import HostVariables
from mxcluster.model.plan import Node, Plan

Nodes = Mapping[str, Node]


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
    away = [host for host in nodes if host not in here]
    if launcher == LOCAL and away:
        raise BadInput(
            "launcher=local starts all processes on this machine, but Ansible reaches %s over ssh: "
            "leave -i out to use inventory/local, or choose another launcher" % some(away)
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


def lines(plan: Plan) -> List[str]:
    """Return the lines of the plan's table about the launcher and the open ports of the job."""
    launcher, open_hosts = LAUNCHERS[plan.launcher], plan.ports_open
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
