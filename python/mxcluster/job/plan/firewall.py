"""Describe the packets that the firewall of a node must let in and out while the job runs."""

import socket
from typing import Sequence

from mxcluster.lists import grouped
from mxcluster.model.firewall import FirewallRequest
from mxcluster.model.plan import Peer, Plan, Process


def wish(plan: Plan, host: str, own: Sequence[Process], peers: Sequence[Peer]) -> FirewallRequest:
    """Return the packets of the node `host`.

    Args: `own` the processes of the node; `peers` all processes of the job.
    """
    node = plan.nodes[host]
    ports = grouped((peer.address, peer.port) for peer in peers)
    return FirewallRequest(
        job=plan.job,
        address=node.address,
        interface=node.interface,
        ports=sorted(process.port for process in own if process.port is not None),
        peers={
            address: sorted(port for port in ports[address] if port is not None)
            for address in sorted(ports, key=socket.inet_aton)
        },
    )
