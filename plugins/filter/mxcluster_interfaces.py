"""Filter: convert Ansible's network facts of the nodes to the form of node records.

Root of a node can change the facts of this node. The planner writes the addresses into files of all
nodes, so the filter checks the shape of each value.
"""

DOCUMENTATION = r"""
name: mxcluster_interfaces
short_description: Extract the IPv4 addresses of nodes from their facts
description:
  - Converts the network facts of hosts to the interfaces and addresses of node records.
  - Fails if a value is invalid, and names the host and the value.
options:
  _input:
    description: The variable C(ansible_facts) of each host, gathered with the subset V(network).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the addresses of the node
  ansible.builtin.debug:
    msg: "{{ {inventory_hostname: ansible_facts} | mxcluster_interfaces }}"
"""

RETURN = r"""
_value:
  description: For each host C(interfaces), a list of C(address/prefix) by name, and
    C(address_of_default_route).
  type: dict
"""

import ipaddress
from typing import Any, Callable, Dict, List

from ansible.errors import AnsibleFilterError

from mxcluster.model.node_record import Network

Json = Dict[str, Any]

CURE = (
    "correct the network of this host (`ip address`, `ip route`), or remove the host from the "
    "inventory: its facts stop provision.yml for all hosts"
)


def mxcluster_interfaces(facts_of: Dict[str, Json]) -> Dict[str, Json]:
    """Return the IPv4 interfaces and addresses of the nodes in the form of node records.

    Args: `facts_of` {host: the variable ansible_facts}.

    Returns {host: the result of `interfaces_in`}. Raises AnsibleFilterError for an invalid value.
    """
    found = {}
    for host, facts in facts_of.items():
        try:
            found[host] = Network.decode(interfaces_in(facts)).encode()
        except (AttributeError, TypeError, ValueError) as error:
            raise AnsibleFilterError(
                "the network facts of %s are invalid (%s): %s" % (host, error, CURE)
            )
    return found


def interfaces_in(facts: Json) -> Json:
    """Return the IPv4 interfaces and addresses in the facts of a node, without a check.

    Args: `facts` the variable ansible_facts.

    Returns:
        {"interfaces": {name: ["address/prefix", ...]}, "address_of_default_route": an address, or
        None without a default route}.
    """
    interfaces: Dict[str, List[str]] = {}
    for name in facts.get("interfaces", []):
        # Names of facts have '_' in place of '-' and ':'.
        seen = facts.get(name.replace("-", "_").replace(":", "_")) or {}
        found = interfaces.setdefault(seen.get("device", name).split(":")[0], [])
        for own in [seen.get("ipv4") or {}] + list(seen.get("ipv4_secondaries") or []):
            if own.get("address"):
                listed = str(
                    ipaddress.IPv4Interface("%s/%s" % (own["address"], own.get("netmask") or 32))
                )
                if listed not in found:
                    found.append(listed)
    return {
        "interfaces": interfaces,
        "address_of_default_route": (facts.get("default_ipv4") or {}).get("address"),
    }


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Return {name of a filter: its function}."""
        return {"mxcluster_interfaces": mxcluster_interfaces}
