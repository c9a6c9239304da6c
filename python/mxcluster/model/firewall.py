"""Define the firewall request of a job. Root writes it on a node for the unit of the firewall."""

from typing import Dict, List, Optional

from mxcluster.model import names
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, ipv4, optional, table, whole

_ports = each(whole(1, 65535), 65535)


class FirewallRequest(Record):
    """The ports of one job on one node, and the nodes that may reach them."""

    job: str = field(names.job_id)
    address: str = field(ipv4)
    """The address at which the job's processes listen."""
    interface: str = field(names.interface_name)
    """The interface with this address."""
    ports: List[int] = field(_ports)
    """The ports of this node's processes."""
    peers: Dict[str, List[int]] = field(table(ipv4, _ports, 100000))
    """The ports of all processes of the job by the address of their node, also of this node."""
    uid: Optional[int] = field(optional(whole(0, 2**32 - 1)), default=None)
    """The uid of the training user. From this node, only this user and root can reach the ports of
    `peers`. None: all users of the node can."""
