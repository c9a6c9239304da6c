"""Describe the packets that the firewall of a node must let in and out while the job runs."""

import socket
from typing import Any, Dict

from mxcluster.lists import grouped

Json = Dict[str, Any]


def wish(plan: Json) -> Json:
    """Return {"job", "address", "interface", "ports", "peers"} for the firewall rules of a node.

    "ports" lists the ports of the node's processes (int). "peers" has the ports of all processes of
    the job by address, {address: [port, ...]}, also those of this node.

    Args: `plan` the plan for the node, from `plan.for_node`.
    """
    node = plan["nodes"][plan["host"]]
    peers = grouped((peer["address"], peer["port"]) for peer in plan["peers"])
    return {
        "job": plan["job"],
        "address": node["address"],
        "interface": node["interface"],
        "ports": sorted(
            process["port"] for process in plan["processes"] if process["port"] is not None
        ),
        "peers": {
            address: sorted(port for port in peers[address] if port is not None)
            for address in sorted(peers, key=socket.inet_aton)
        },
    }
