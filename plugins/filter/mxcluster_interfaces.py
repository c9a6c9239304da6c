"""Filter: convert Ansible's network facts of a node to the form of a node record."""

DOCUMENTATION = r"""
name: mxcluster_interfaces
short_description: Extract the IPv4 addresses of a node from its facts
description: Converts the network facts of a host to the interfaces and addresses of a node record.
options:
  _input:
    description: The variable C(ansible_facts), gathered with the subset V(network).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the addresses of the node
  ansible.builtin.debug:
    msg: "{{ ansible_facts | mxcluster_interfaces }}"
"""

RETURN = r"""
_value:
  description: C(interfaces), a list of C(address/prefix) by name, and C(address_of_default_route).
  type: dict
"""

import ipaddress
from typing import Any, Callable, Dict, List

Json = Dict[str, Any]


def mxcluster_interfaces(facts: Json) -> Json:
    """Return the IPv4 interfaces and addresses of a node in the form of a node record.

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
