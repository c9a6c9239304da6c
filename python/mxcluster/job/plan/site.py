"""Find the addresses of the hosts of an inventory."""

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from mxcluster.errors import BadInput, for_each
from mxcluster.job.plan import addresses, ports
from mxcluster.lists import unique
from mxcluster.model.checkpoint import CheckpointManifest
from mxcluster.model.host_variables import HostVariables, of_hosts
from mxcluster.model.inventory import Inventory
from mxcluster.model.job_knobs import Options
from mxcluster.model.node_record import MachineFacts, NodeRecord
from mxcluster.model.plan import Place
from mxcluster.model.profile import Profile

Texts = Mapping[str, Optional[str]]
FILES = ("hosts", "groups", "data_sharding")


class Inputs(NamedTuple):
    """The inputs of a plan.

    Attributes:
        options: the typed knobs from `options.cast`.
        inventory: the hosts, and Ansible's number of forks.
        records: {host: node record}.
        job: the id of the job, which is also the name of the job folder.
        files: {"hosts", "groups" or "data_sharding": the text of the user's file, None without}.
        model_file: the path on the nodes of the saved model to start from: absolute, or relative
            to the job folder.
        held: {host: ports and GPUs in use, from `mxcluster.node.probe.held`}. With None, all ports
            and GPUs count as free.
        profile: the measured speeds of the cluster, from `cluster.profile.of_file`. A profile that
            fits the job supplies the groups, shares, first batch sizes, GPU speeds and servers of
            parameters that the user has left out.
        checkpoint: the manifest of the checkpoint from which the job resumes.
        first_port: the port at which the search of root_port=auto begins.
    """

    options: Options
    inventory: Inventory
    records: Mapping[str, NodeRecord]
    job: str
    files: Texts = {}
    model_file: Optional[str] = None
    held: Optional[ports.Held] = None
    profile: Optional[Profile] = None
    checkpoint: Optional[CheckpointManifest] = None
    first_port: int = ports.FIRST


class Site:
    """The machines of an inventory, and the user's files about them.

    Args:
        options: the typed knobs. The class reads dmlc_interface, and the names of the files.
        hosts: the hosts of the inventory that may have a part in the job.
        records: {host: node record}.
        files: {"hosts", "groups" or "data_sharding": the text of the user's file, None without}.

    Raises BadInput for a wrong host variable, and if an option names a file without a text.
    """

    def __init__(
        self,
        options: Options,
        inventory: Inventory,
        hosts: Sequence[str],
        records: Mapping[str, MachineFacts],
        files: Texts,
    ) -> None:
        self.names = _names_of_files(options, files)  # {"hosts": "hosts_file PATH", ...}
        self.variables: Mapping[str, HostVariables] = of_hosts(hosts, inventory.hosts)
        self.groups, self.forks = inventory.groups, inventory.forks
        self.records, self.files = records, files
        self._interface = options.dmlc_interface

    def find(self, host: str) -> Place:
        """Return the address and interface of a host. Raises BadInput if they are unknown."""
        return addresses.locate(host, self.variables[host], self.records.get(host), self._interface)

    def locate(self, hosts: Sequence[str]) -> Dict[str, Place]:
        """Return {host: its address and interface}.

        Raises BadInput if Ansible has too few forks, if two hosts have the same address, or if a
        host has an address that the others cannot reach.
        """
        if self.forks < len(hosts):
            # Ansible runs a task on at most `forks` nodes at a time. The leases of all other nodes
            # would expire.
            raise BadInput(
                "forks=%d is fewer than the %d nodes of the job: set forks = %d in ansible.cfg, or "
                "call ansible-playbook with -f %d"
                % (self.forks, len(hosts), len(hosts), len(hosts))
            )
        places = dict(zip(hosts, for_each(self.find, hosts)))
        addresses.check_distinct(places)
        addresses.check_loopback(places, self.records)
        return places


def hosts_of(inventory: Inventory) -> List[str]:
    """Return the hosts in the groups of the inventory."""
    return unique(host for group in inventory.groups.values() for host in group)


def _names_of_files(options: Options, files: Texts) -> Dict[str, str]:
    """Return {"hosts": "hosts_file PATH", ...}, the names of the three cluster files for messages.

    Raises BadInput if an option names a file whose text is missing in `files`.
    """
    paths: Dict[str, str] = {name: vars(options)[name + "_file"] for name in FILES}
    for name, path in paths.items():
        if path and files.get(name) is None:
            raise BadInput("%s_file='%s' is missing: correct the path" % (name, path))
    return {name: "%s_file %s" % (name, path) if path else name for name, path in paths.items()}
