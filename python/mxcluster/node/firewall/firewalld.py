"""Open a job's ports to the job's peers with rich rules of firewalld.

The rules belong to the runtime configuration. Each rule goes into the zone that handles the packets
of one peer.
"""

import ipaddress
import shutil
import subprocess
from typing import Dict, List

from mxcluster.lists import spans
from mxcluster.model.firewall import FirewallRequest
from mxcluster.node.firewall.run import run

Zones = Dict[str, Dict[str, List[str]]]  # {zone: {"interfaces": [...], "sources": [...]}}
Rich = Dict[str, List[str]]  # {zone: rich rules}


def runs() -> bool:
    """Return True if firewalld is active."""
    return (
        bool(shutil.which("firewall-cmd"))
        and subprocess.call(["firewall-cmd", "--quiet", "--state"]) == 0
    )


def rules_for(request: FirewallRequest) -> Rich:
    """Query firewalld's zones, and return the result of `rich_rules`."""
    zones = parse_zones(run(["firewall-cmd", "--get-active-zones"]))
    return rich_rules(request, zones, run(["firewall-cmd", "--get-default-zone"]).strip())


def change(action: str, rules: Rich) -> None:
    """Add `rules` for the `action` "open", or remove `rules` for the `action` "close".

    `rules`: {zone: [rich rule, ...]}. For "open" a rule may already exist, and for "close" a rule
    may be missing.
    """
    option = {"open": "--add-rich-rule=", "close": "--remove-rich-rule="}[action]
    for zone, rich in rules.items():
        run(["firewall-cmd", "--quiet", "--zone=" + zone] + [option + rule for rule in rich])


def parse_zones(text: str) -> Zones:
    """Return {zone: {"interfaces": [...], "sources": [...]}} for the active zones.

    `text`: the output of `firewall-cmd --get-active-zones`.
    """
    zones, zone = {}, ""  # type: Zones, str
    for line in text.splitlines():
        if line and not line[0].isspace():
            zone = line.split()[0]
            zones[zone] = {"interfaces": [], "sources": []}
        elif zone and ":" in line:
            key, _, values = line.strip().partition(":")
            zones[zone][key] = values.split()
    return zones


def zone_of(peer: str, interface: str, zones: Zones, default: str) -> str:
    """Return the name of the zone that handles packets from `peer` over `interface`.

    A zone with the peer's address as a source comes first, then the zone of the interface, then
    `default`.
    """
    address = ipaddress.IPv4Address(peer)
    for zone, has in zones.items():
        for source in has["sources"]:
            try:
                if address in ipaddress.IPv4Network(source, strict=False):
                    return zone
            except ValueError:  # an IPv6 network, a MAC address, an ipset
                continue
    return next((zone for zone, has in zones.items() if interface in has["interfaces"]), default)


def rich_rules(request: FirewallRequest, zones: Zones, default: str) -> Rich:
    """Return {zone: [rich rule, ...]}, with rules that admit the job's peers to the job's ports.

    `zones`: the result of `parse_zones`. `default`: the name of the default zone.
    """
    rules = {}  # type: Rich
    for peer in request.peers:
        zone = zone_of(peer, request.interface, zones, default)
        rules.setdefault(zone, []).extend(
            'rule family="ipv4" source address="%s" destination address="%s" port port="%s" '
            'protocol="tcp" accept' % (peer, request.address, ports)
            for ports in spans(request.ports)
        )
    return rules
