"""Launchers: how the agents of a job's nodes start, and which inventories fit a launcher. Pure.

A launcher differs from another in the start of the agents only. The plan, the processes, the polls
and the report are the same.
"""

from typing import Any, Dict, List, Sequence

from mxcluster.errors import BadInput, refuse, some
from mxcluster.lists import grouped

SSH, LOCAL, MPI = "ssh", "local", "mpi"
LAUNCHERS = (SSH, LOCAL, MPI)
# The launchers whose agents an engine of the site starts, as the training user: without root, so
# without a systemd unit and without a firewall rule of mxcluster.
ENGINES = {MPI: "mpirun"}
RUNTIMES = ("openmpi", "mpich", "intelmpi")

Nodes = Dict[str, Dict[str, Any]]


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
                "launcher=mpi starts one agent on each machine over ssh, and %s are this machine "
                "(ansible_connection: local): use launcher=local" % some(here)
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


def first(plan: Dict[str, Any]) -> str:
    """Return the host that runs the engine's program: that of the scheduler, else the first."""
    hosts: List[str] = list(plan["nodes"])
    return hosts[0]


def differing(found: Dict[str, Any]) -> List[str]:
    """Return a problem if the nodes have different engines or versions of mpirun, else [].

    Args: `found` {host: {"path", "runtime", "version"}, or None for a node without an answer}.
    """
    told = {host: engine for host, engine in found.items() if engine}
    versions = grouped(
        ("%s %s" % (told[host]["runtime"], told[host]["version"]), host) for host in told
    )
    if len(versions) < 2:
        return []
    return [
        "the nodes have different versions of mpirun (%s), and one mpirun starts the agents on all "
        "of them: install the same version, or choose one engine that all nodes have with -e "
        "mpi_runtime=%s, or its program with -e mpirun=/path/to/mpirun"
        % (
            "; ".join("%s: %s" % (version, some(versions[version])) for version in versions),
            "|".join(RUNTIMES),
        )
    ]


def told(plan: Dict[str, Any], open_hosts: Sequence[str]) -> List[str]:
    """Return the lines of the plan's table about the launcher and the ports of the job.

    Args: `open_hosts` the hosts whose ports every host can reach.
    """
    lines, engine = [], ENGINES.get(plan.get("launcher") or SSH)
    if engine:
        lines.append(
            "launcher %s: one %s on %s starts the agents as the training user, without root and "
            "without systemd units" % (plan["launcher"], engine, first(plan))
        )
    if open_hosts:
        lines.append(
            "ports: open to every host that can reach %s: jobs run without root there (%s)"
            % (
                some(list(open_hosts)),
                "launcher=%s" % plan["launcher"] if engine else "mxcluster_user is empty",
            )
        )
    return lines
