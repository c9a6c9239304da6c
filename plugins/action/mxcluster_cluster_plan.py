"""Plan the cluster files and the ssh files of all nodes on the controller.

The plugin calls `mxcluster.job.plan.inputs.plan_cluster` and `mxcluster.cluster.ssh_mesh`. Unlike a
template, the plugin reads the records of all nodes at once. Each error message of the plugin names
the host with the wrong setting. The plugin writes no file. In check mode node records may be
missing.
"""

from typing import Mapping, Sequence

from mxcluster.ansible import arguments, controller_task
from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.cluster import node_records, ssh_mesh
from mxcluster.job.plan import inputs
from mxcluster.model.host_variables import Given, of_hosts
from mxcluster.model.inventory import Inventory
from mxcluster.model.node_record import Network
from mxcluster.model.plan import Place
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import anything, table


class Arguments(Record, strict=True, kind_key="command"):
    """The arguments of each command."""

    records_dir: str = field(arguments.path)
    """The folder of the node records. The file profile.json beside this folder supplies missing
    groups and data shares."""


class Files(Arguments, kind="files"):
    """Choose the address and interface of each node, and the contents of the cluster files."""

    options: Mapping[str, object] = field(arguments.json, default={})
    """The knobs hosts_file, groups_file, data_sharding_file and dmlc_interface, as the user gave
    them."""
    inventory: Inventory = field(record(Inventory))
    """The result of the filter mxcluster_inventory."""
    forks: int = field(arguments.whole(0, 10**6))
    facts: Mapping[str, Network] = field(
        table(arguments.text, record(Network), arguments.MOST), default={}
    )
    """{host: result of the filter mxcluster_interfaces} of the nodes of this play. The node records
    supply the interfaces of the other nodes."""
    cwd: str = field(arguments.path)
    """The folder at which the user's relative paths begin."""


class Ssh(Arguments, kind="ssh"):
    """Return the blocks of the ssh files, which are the same on all nodes."""

    nodes: Mapping[str, ssh_mesh.Node] = field(table(arguments.text, record(ssh_mesh.Node)))
    """The result `nodes` of the command files."""
    variables: Given = field(arguments.by_host)
    """The result of the filter mxcluster_ssh."""
    key_file: str = field(arguments.text)
    """The private key on the nodes, as in ssh's files."""


class PlannedFiles(controller_task.Result):
    """The cluster files."""

    nodes: Mapping[str, Place] = field(anything)
    """The address and interface of each host."""
    files: Mapping[str, str] = field(anything)
    """The contents of hosts, groups and data_sharding."""
    notes: Sequence[str] = field(arguments.texts)
    """The path of the profile, and whether the profile fits the workers."""


class PlannedSsh(controller_task.Result):
    """The ssh files."""

    blocks: Mapping[str, str] = field(anything)
    """The blocks of authorized_keys, known_hosts and config."""
    origins: Mapping[str, Sequence[str]] = field(anything)
    """{host: addresses from which its ssh connections may come}."""
    gone: Sequence[str] = field(arguments.texts)
    """The hosts with a node record that left the inventory."""
    still_hold: Sequence[str] = field(arguments.texts)
    """The hosts of `gone` with an SSH key that the inventory still uses."""


def carry_out(given: Arguments, check: bool) -> controller_task.Result:
    """Plan the cluster files or the ssh files.

    Args: `given` the arguments of the task; `check` True in check mode, in which the ssh files
    accept missing node records.
    """
    if isinstance(given, Files):
        planned = inputs.plan_cluster(
            given.options,
            given.inventory.replaced(forks=given.forks),
            given.records_dir,
            given.facts,
            given.cwd,
        )
        return PlannedFiles(nodes=planned.nodes, files=planned.files, notes=planned.notes)
    records = node_records.read(given.records_dir)
    variables = of_hosts(list(given.nodes), given.variables)
    return PlannedSsh(
        blocks=ssh_mesh.blocks(given.nodes, records, variables, given.key_file, draft=check),
        origins=ssh_mesh.origins_of(given.nodes, variables),
        gone=ssh_mesh.gone(given.nodes, records),
        still_hold=ssh_mesh.still_hold(given.nodes, records),
    )


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_cluster_plan`, which Ansible runs on the controller."""
