"""Find the nodes of a job in the inventory and the node records, and check them."""

import posixpath
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from mxcluster import schemes
from mxcluster.errors import BadInput, for_each
from mxcluster.job.plan import addresses, containers, members, ports, round_robin
from mxcluster.launchers import LAUNCHERS
from mxcluster.lists import unique
from mxcluster.model.checkpoint import CheckpointManifest
from mxcluster.model.host_variables import HostVariables, of_hosts
from mxcluster.model.inventory import Inventory
from mxcluster.model.job_knobs import HOST, Options
from mxcluster.model.node_record import MachineFacts, NodeRecord
from mxcluster.model.plan import Node
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

    def find(self, host: str) -> addresses.Node:
        """Return the address and interface of a host. Raises BadInput if they are unknown."""
        return addresses.locate(host, self.variables[host], self.records.get(host), self._interface)

    def locate(self, hosts: Sequence[str]) -> List[addresses.Node]:
        """Return the address and interface of each host.

        Raises BadInput if Ansible has too few forks, if two hosts have the same address, or if a
        host has an address that the others cannot reach.
        """
        members.check_forks(hosts, self.forks)
        found: List[addresses.Node] = for_each(self.find, hosts)
        addresses.check_distinct(found)
        addresses.check_loopback(found, self.records)
        return found


class Members(NamedTuple):
    """The host of each process of a training. The number of a worker is its place in a list.

    The user's files describe `everyone`, and the job uses the first of these as its `workers`.
    """

    scheduler: Optional[str]
    servers: List[str]
    everyone: List[str]
    workers: List[str]

    @property
    def hosts(self) -> List[str]:
        """All hosts of the job."""
        first = [self.scheduler] if self.scheduler else []
        return unique(first + self.servers + self.workers)


def hosts_of(inventory: Inventory) -> List[str]:
    """Return the hosts in the groups of the inventory."""
    return unique(host for group in inventory.groups.values() for host in group)


def members_of(site: Site, options: Options) -> Members:
    """Return the hosts of the scheduler, the servers and the workers of a training.

    Raises BadInput if the groups have too few hosts, or if the job has too many processes.
    """
    distributed = schemes.of(options.kv).is_distributed
    groups, variables = site.groups, site.variables
    scheduler = members.scheduler(groups) if distributed else None
    wanted = 0 if options.round_robin else options.num_servers
    in_batch = LAUNCHERS[options.launcher].is_batch
    servers = members.servers(groups, variables, wanted, in_batch) if distributed else []
    everyone = members.workers(
        groups, variables, site.files.get("hosts"), site.names["hosts"], site.find
    )
    if options.round_robin:
        dealt = round_robin.place(options, groups, variables, site.records, site.find)
        servers, everyone = dealt[0] if distributed else [], dealt[1]
    count = members.number_of_workers(distributed, options.num_workers, len(everyone), in_batch)
    workers = everyone[:count]
    members.check_numbers({"servers": servers, "workers": workers})
    return Members(scheduler, servers, everyone, workers)


def nodes_of(
    found: Sequence[addresses.Node],
    records: Mapping[str, NodeRecord],
    job: str,
    options: Options,
) -> Dict[str, Node]:
    """Return {host: its node in the plan} of a training.

    Raises BadInput if a node is not provisioned, or if the versions of MXNet differ.
    """
    hosts = [one.host for one in found]
    members.check_provisioned(hosts, records)
    members.check_versions(hosts, records)
    nodes = {}
    for one in found:
        record = records[one.host]
        folders = (options.data_dir, record.data_dir, record.cuda.folder if record.cuda else "")
        nodes[one.host] = node_of(one, record, job).replaced(
            cuda=record.cuda,
            mounts=None if options.runtime == HOST else containers.mounts(*folders),
        )
    return nodes


def node_of(found: addresses.Node, record: NodeRecord, job: str) -> Node:
    """Return the node of a plan, without CUDA."""
    return Node(
        address=found.address,
        interface=found.interface,
        job_dir=posixpath.join(record.job_dir, job),
        python=record.python or "",
        build=record.target,
    )


def _names_of_files(options: Options, files: Texts) -> Dict[str, str]:
    """Return {"hosts": "hosts_file PATH", ...}, the names of the three cluster files for messages.

    Raises BadInput if an option names a file whose text is missing in `files`.
    """
    paths: Dict[str, str] = {name: vars(options)[name + "_file"] for name in FILES}
    for name, path in paths.items():
        if path and files.get(name) is None:
            raise BadInput("%s_file='%s' is missing: correct the path" % (name, path))
    return {name: "%s_file %s" % (name, path) if path else name for name, path in paths.items()}
