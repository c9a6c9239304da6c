"""Find the address and interface of a node in the host variables and the node record.

All functions are pure.
"""

import ipaddress
from typing import List, Mapping, Optional, Sequence, Tuple

from mxcluster.cluster_files import is_ipv4
from mxcluster.errors import BadInput, refuse
from mxcluster.lists import grouped
from mxcluster.model.host_variables import HostVariables
from mxcluster.model.node_record import MachineFacts, Network, NodeRecord
from mxcluster.model.plan import Place

Places = Mapping[str, Place]  # of each host
Interfaces = List[Tuple[str, List[ipaddress.IPv4Interface]]]
_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")


def locate(
    host: str,
    variables: HostVariables,
    record: Optional[MachineFacts],
    dmlc_interface: str = "",
) -> Place:
    """Return the address and interface of `host`.

    The first source of this list with a value gives the address:

    1. `dmlc_interface` of the job, or else of the host: the only IPv4 address of this interface, or
       `node_address` if the interface holds this address;
    2. the host variable `node_address`, a literal IPv4 address;
    3. the only address of the node inside the host variable `cluster_network`, a CIDR;
    4. the address of the default route in the record.

    Raises BadInput if the source gives no address or several addresses, or if no interface of the
    node holds the address.
    """
    if record is None:
        raise BadInput("%s: the node has no record: run provision.yml without --limit" % host)
    if isinstance(record, NodeRecord):
        record.refuse_damaged()
    interfaces = _addresses(record)
    wanted, network = variables.node_address, variables.cluster_network
    if wanted and not is_ipv4(wanted):
        raise BadInput(
            "%s: node_address='%s' is not a literal IPv4 address: write it as four numbers, such "
            "as 10.0.0.5" % (host, wanted)
        )
    kind = _kind_of_no_node(wanted, interfaces) if wanted else None
    if kind:
        raise BadInput(
            "%s: node_address=%s is %s, not the address of a node: write one of the node's own "
            "addresses (%s)" % (host, wanted, kind, _listed(interfaces))
        )
    interface = dmlc_interface or variables.dmlc_interface
    if interface:
        address = _on_interface(host, interface, wanted, interfaces)
        return Place(address=address, interface=interface)
    if not wanted and network:
        wanted = _in_network(host, network, interfaces)
    if not wanted:
        wanted = record.address_of_default_route or ""
    if not wanted:
        raise BadInput(
            "%s: the node has no default route, so the address is unknown (the node has %s): set "
            "node_address or cluster_network for this host" % (host, _listed(interfaces))
        )
    holder = interface_of(wanted, record)
    if holder is None:
        raise BadInput(
            "%s: no interface of the node holds the address %s (the node has %s): correct "
            "node_address, or bring the interface up and run provision.yml again"
            % (host, wanted, _listed(interfaces))
        )
    return Place(address=wanted, interface=holder)


def interface_of(address: str, record: Network) -> Optional[str]:
    """Return the name of the interface that holds `address`, or None.

    The loopback interface holds all addresses of 127.0.0.0/8, but lists only 127.0.0.1.
    """
    loopback = None
    for name, addresses in _addresses(record):
        if address in [str(own.ip) for own in addresses]:
            return name
        if _holds(address, addresses):
            loopback = loopback or name
    return loopback


def _holds(address: str, addresses: Sequence[ipaddress.IPv4Interface]) -> bool:
    """Return True if an interface with `addresses` holds `address`."""
    wanted = ipaddress.IPv4Address(address)
    return any(
        own.ip == wanted or own.network == _LOOPBACK and wanted in _LOOPBACK for own in addresses
    )


def _kind_of_no_node(text: str, interfaces: Interfaces) -> Optional[str]:
    """Return the kind of the address `text` if no node can use the address, else None.

    The kind is a string such as "a multicast address".
    """
    address = ipaddress.IPv4Address(text)
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified or str(address) == "255.255.255.255":
        return "an unspecified or broadcast address"
    for own in (own for _, addresses in interfaces for own in addresses):
        if own.network.prefixlen < 31 and own.ip != address:
            if address == own.network.network_address:
                return "the address of the network %s" % own.network
            if address == own.network.broadcast_address:
                return "the broadcast address of the network %s" % own.network
    return None


def check_loopback(places: Places, records: Mapping[str, MachineFacts]) -> None:
    """Refuse loopback addresses in a job of several machines.

    A loopback address reaches only processes on the same machine. Nodes with the same hostname,
    such as the nodes of the local inventory, share one machine.
    """
    machines = {records[host].hostname for host in places} - {""}
    if len(machines) > 1:
        refuse(
            "%s: %s is a loopback address, which the other machines cannot reach: set node_address "
            "or cluster_network" % (host, place.address)
            for host, place in places.items()
            if ipaddress.IPv4Address(place.address) in _LOOPBACK
        )


def check_distinct(places: Places) -> None:
    """Refuse two nodes of one job with the same address."""
    holders = grouped((place.address, host) for host, place in places.items())
    refuse(
        "%s have the same address %s: give each host its own node_address, or list a machine with "
        "several names only once in the inventory" % (" and ".join(holders[address]), address)
        for address in sorted(holders)
        if len(holders[address]) > 1
    )


def network(places: Places, records: Mapping[str, Network]) -> str:
    """Return address/prefix of the one network that holds the addresses of all nodes, else "".

    "" for loopback addresses, too: Open MPI's daemons refuse them.
    """
    networks = {
        str(own.network)
        for host, place in places.items()
        for text in records[host].interfaces.get(place.interface, [])
        for own in [ipaddress.ip_interface(text)]
        if str(own.ip) == place.address and not own.is_loopback
    }
    return networks.pop() if len(networks) == 1 else ""


def _addresses(record: Network) -> Interfaces:
    return [
        (name, [ipaddress.IPv4Interface(text) for text in texts])
        for name, texts in sorted(record.interfaces.items())
    ]


def _on_interface(host: str, name: str, wanted: str, interfaces: Interfaces) -> str:
    there = dict(interfaces)
    if name not in there:
        raise BadInput(
            "%s: the interface dmlc_interface=%s is missing on the node (the node has %s): name "
            "one of these interfaces" % (host, name, _listed(interfaces))
        )
    if wanted and _holds(wanted, there[name]):
        return wanted
    if len(there[name]) != 1:
        raise BadInput(
            "%s: the interface dmlc_interface=%s must have exactly one IPv4 address (%s): %s"
            % (
                host,
                name,
                _listed([(name, there[name])]),
                "set node_address to one of these addresses"
                if there[name]
                else "give the interface an address, or name another interface",
            )
        )
    return str(there[name][0].ip)


def _in_network(host: str, network: str, interfaces: Interfaces) -> str:
    try:
        cidr = ipaddress.IPv4Network(network, strict=False)
    except ValueError:
        raise BadInput(
            "%s: cluster_network='%s' is not an IPv4 network: write a network such as 10.0.0.0/24"
            % (host, network)
        ) from None
    inside = [str(own.ip) for _, addresses in interfaces for own in addresses if own.ip in cidr]
    if len(inside) != 1:
        raise BadInput(
            "%s: cluster_network=%s must hold exactly one of the node's addresses, but holds %s "
            "(the node has %s): correct cluster_network, or set node_address for this host"
            % (host, network, " and ".join(inside) if inside else "none", _listed(interfaces))
        )
    return inside[0]


def _listed(interfaces: Interfaces) -> str:
    return (
        "; ".join(
            "%s: %s" % (name, ", ".join(str(own.ip) for own in addresses) or "no IPv4 address")
            for name, addresses in interfaces
        )
        or "no interfaces"
    )
