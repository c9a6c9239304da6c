"""Describe the packets that the firewall of a node must let in while the job runs."""

import socket
from typing import Any, Dict

Json = Dict[str, Any]


def wish(plan: Json) -> Json:
    """Return {"job", "address", "interface", "ports", "peers"} for the firewall rules of a node.

    "ports" lists the ports of the node's processes (int). "peers" lists the addresses of all
    processes of the job (str).

    Args: `plan` the plan for the node, from `plan.for_node`.
    """
    node = plan["nodes"][plan["host"]]
    return {
        "job": plan["job"],
        "address": node["address"],
        "interface": node["interface"],
        "ports": sorted(
            process["port"] for process in plan["processes"] if process["port"] is not None
        ),
        "peers": sorted({peer["address"] for peer in plan["peers"]}, key=socket.inet_aton),
    }
