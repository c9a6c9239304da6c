"""Convert Ansible's network facts of a node to the form of node records.

Root of a node can change the facts of this node. The planner writes the addresses into files of all
nodes, so the classes of this module check the shape of each value.
"""

import ipaddress
from typing import Dict, List, Mapping, Optional, Sequence

from mxcluster.ansible import edge
from mxcluster.errors import BadInput
from mxcluster.model.node_record import Network
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, optional, text

CURE = (
    "correct the network of this host (`ip address`, `ip route`), or remove the host from the "
    "inventory: its facts stop provision.yml for all hosts"
)


class Address(Record):
    """An IPv4 address in the facts."""

    address: Optional[str] = field(optional(text), default=None)
    netmask: Optional[str] = field(optional(text), default=None)


class Interface(Record):
    """An interface in the facts, or its alias such as eth0:1."""

    device: Optional[str] = field(optional(text), default=None)
    ipv4: Address = field(record(Address), default=Address())
    ipv4_secondaries: Sequence[Address] = field(each(record(Address)), default=[])


class Facts(Record):
    """The network facts of a node. The fact of each interface has the name of the interface."""

    interfaces: Sequence[str] = field(each(text), default=[])
    default_ipv4: Address = field(record(Address), default=Address())


def of(host: str, facts: edge.Facts) -> Network:
    """Return the IPv4 interfaces and addresses of `host` in the form of node records.

    Args: `facts` the variable ansible_facts. Raises BadInput for an invalid value.
    """
    try:
        known = Facts.decode(facts)
        # Names of facts have '_' in place of '-' and ':'.
        seen = {
            name: Interface.decode(facts.get(name.replace("-", "_").replace(":", "_")) or {})
            for name in known.interfaces
        }
        return Network.decode(
            {
                "interfaces": _addresses(seen),
                "address_of_default_route": known.default_ipv4.address,
            }
        )
    except ValueError as error:  # Wrong is a ValueError, as the errors of ipaddress
        raise BadInput(
            "the network facts of %s are invalid (%s): %s" % (host, error, CURE)
        ) from None


def _addresses(seen: Mapping[str, Interface]) -> Dict[str, List[str]]:
    """Return {interface: its addresses, such as "10.0.0.5/24"}, with those of its aliases."""
    found: Dict[str, List[str]] = {}
    for name, facts in seen.items():
        device = name if facts.device is None else facts.device
        addresses = found.setdefault(device.split(":")[0], [])
        for own in [facts.ipv4, *facts.ipv4_secondaries]:
            if own.address:
                text = "%s/%s" % (own.address, own.netmask or 32)
                addresses.append(str(ipaddress.IPv4Interface(text)))
    return {name: list(dict.fromkeys(listed)) for name, listed in found.items()}
