"""Compute the blocks of authorized_keys, known_hosts and ssh's configuration for all nodes.

All nodes get equal blocks. The names of a node and the origins of its connections come from the
inventory: its name, its planned address (`plan.make_cluster_files`) and two host variables.
ansible_host is the address that the controller uses. ssh_mesh_from lists further addresses from
which the node may connect. A host name or an interface in a node record is no name and no origin:
a node that calls itself github.com would receive the connections of all nodes to github.com. The
node records give keys, users and ports only.

The controller checks node records when it writes and reads them. This module checks each word of a
line once more. So a word from any source stays one word, and cannot become an option, a marker such
as @cert-authority, or a new line.
"""

import re
from collections import Counter
from typing import Any, Dict, List, Sequence

from mxcluster.cluster import node_records
from mxcluster.errors import BadInput, for_each, refuse, shown
from mxcluster.lists import grouped, unique
from mxcluster.model import shapes
from mxcluster.numbers import to_int

Json = Dict[str, Any]

VARIABLES = ("ansible_host", "ansible_port", "node_host_key", "ssh_mesh_from")
DRAFT = re.compile(r"\(the (key that [^\s\"]+ is going to make|host keys of [^\s\"]+)\)")
# A host name, an address (IPv6 with its zone), an inventory name. The characters '*', '?', '!',
# ',', '|' and '@' have a special meaning in ssh's files.
NAME = shapes.matching(r"[A-Za-z0-9_:][A-Za-z0-9_.:%/+-]*", "one name or address", 255)
ORIGIN = shapes.matching(
    r"[A-Za-z0-9_.:%/*?!-]+", "an address, a pattern or a network that ssh's from= accepts", 255
)


def blocks(
    nodes: Dict[str, Json],
    records: Dict[str, Json],
    variables: Dict[str, Json],
    key_file: str,
    draft: bool = False,
) -> Dict[str, str]:
    """Return {"authorized_keys", "known_hosts", "config"}, the text of the block for each file.

    Args:
        nodes: {host: {"address", ...}} of the whole cluster.
        records: {host: node record}.
        variables: {host: host variables}.
        key_file: the path of the private key in ssh's configuration.
        draft: True to write placeholders for unknown keys (check mode).

    Raises BadInput if a node's key is unknown, or if ssh's files cannot contain a value.
    """
    if not draft:
        for_each(lambda host: node_records.refuse_damaged(host, records.get(host, {})), nodes)
        refuse(
            "%s: the controller lacks the ssh keys of this node: run provision.yml without --limit"
            % host
            for host in nodes
            if not _ssh(records, host).get("public_key")
        )
    names = names_of(nodes, variables)
    try:
        return {
            "authorized_keys": "\n".join(authorized(nodes, records, variables)),
            "known_hosts": "\n".join(
                line for host in nodes for line in known(host, names[host], records)
            ),
            "config": "\n".join(
                [
                    line
                    for host in nodes
                    for line in configured(host, nodes[host], names[host], records, key_file)
                ]
                + ["# The next lines apply to all hosts.", "Match all"]
            ),
        }
    except shapes.Wrong as wrong:
        raise BadInput(
            "mxcluster cannot write ssh's files: %s is not %s. If the value is in the inventory (a "
            "host's name, ansible_host, ssh_mesh_from), correct the inventory. Otherwise run "
            "provision.yml for the node with this value" % (wrong.shown, wrong.what)
        ) from None


def authorized(
    nodes: Dict[str, Json], records: Dict[str, Json], variables: Dict[str, Json]
) -> List[str]:
    """Return the lines of authorized_keys, one for each key.

    A line limits its key to the planned addresses of the nodes with this key, and ssh_mesh_from.

    The arguments are those of `blocks`.
    """
    holders = grouped(
        (_ssh(records, host).get("public_key") or "(the key that %s is going to make)" % host, host)
        for host in nodes
    )
    lines = []
    for key, hosts in holders.items():
        origins = []  # type: List[str]
        for host in hosts:
            origins += origins_of({host: nodes[host]}, variables)[host]
        owner = NAME(hosts[0]) if len(hosts) == 1 else "all"
        lines.append(
            'from="%s" %s mxcluster:%s' % (",".join(map(ORIGIN, unique(origins))), _key(key), owner)
        )
    return lines


def origins_of(nodes: Dict[str, Json], variables: Dict[str, Json]) -> Dict[str, List[str]]:
    """Return {host: the addresses from which its ssh connections may come}.

    These are the planned address and ssh_mesh_from. The arguments are those of `blocks`.
    """
    more = {host: variables.get(host, {}).get("ssh_mesh_from") or [] for host in nodes}
    return {
        host: [node["address"]] + ([more[host]] if isinstance(more[host], str) else more[host])
        for host, node in nodes.items()
    }


def on_node(authorized_keys: str, host: str, origins: Dict[str, List[str]]) -> str:
    """Return the block of authorized_keys for the node `host`: no key is valid from this node.

    A connection of a node to itself would lead a job out of its unit: the session has other rights,
    and does not end with the job.

    Args: `authorized_keys` the block for all nodes, from `blocks`; `origins` from `origins_of`.
    """
    others = {origin for other in origins if other != host for origin in origins[other]}
    own = set(origins[host]) - others
    lines = []
    for line in authorized_keys.splitlines():
        start, listed, end = line.split('"', 2)
        kept = [origin for origin in listed.split(",") if origin not in own]
        if kept and line.rpartition(" mxcluster:")[2] != host:
            lines.append('%s"%s"%s' % (start, ",".join(kept), end))
    return "\n".join(lines)


def known(host: str, names: Sequence[str], records: Dict[str, Json]) -> List[str]:
    """Return the lines of known_hosts for the node `host`, one for each of its host keys.

    Args: `names` the node's names and addresses; `records` {host: node record}.
    """
    port = _port(records, host)
    patterns = ",".join(
        NAME(name) if port == 22 else "[%s]:%d" % (NAME(name), port) for name in names
    )
    keys = records.get(host, {}).get("host_keys") or ["(the host keys of %s)" % host]
    return ["%s %s" % (patterns, _key(key)) for key in keys]


def configured(
    host: str, node: Json, names: Sequence[str], records: Dict[str, Json], key_file: str
) -> List[str]:
    """Return the lines of ssh's configuration that make `ssh <host>` reach the node `host`.

    Args: `node` {"address", ...}; `names` of the node, from `names_of`; `records` and `key_file` as
    in `blocks`.
    """
    ssh = _ssh(records, host)
    lines = [
        "Host " + " ".join(map(NAME, names)),
        "    HostName " + NAME(node["address"]),
        "    IdentityFile " + key_file,
    ]
    if _port(records, host) != 22:
        lines.append("    Port %d" % _port(records, host))
    if ssh.get("user"):
        lines.append("    User " + node_records.user_name(ssh["user"]))
    return lines


def names_of(nodes: Dict[str, Json], variables: Dict[str, Json]) -> Dict[str, List[str]]:
    """Return {host: its names and addresses, each once}: inventory name, ansible_host, address.

    A name that two nodes have belongs to neither. Only inventory names always stay, and a planned
    address that no other node has as its name or ansible_host: without node_address the address is
    a fact of the node, and a node must not take the address of another node. No node except one
    with this inventory name is called localhost.

    The arguments are those of `blocks`.
    """
    given = {host: {host, variables.get(host, {}).get("ansible_host") or host} for host in nodes}
    names = {
        host: unique(
            name
            for name in [host, variables.get(host, {}).get("ansible_host"), node["address"]]
            if name == host or (name and not name.startswith("localhost"))
        )
        for host, node in nodes.items()
    }
    counts = Counter(name for found in names.values() for name in found)
    holders = Counter(name for found in given.values() for name in found)
    return {
        host: [
            name
            for name in found
            if counts[name] == 1
            or name == host
            or (name == nodes[host]["address"] and (name in given[host] or not holders[name]))
        ]
        for host, found in names.items()
    }


def gone(nodes: Dict[str, Json], records: Dict[str, Json]) -> List[str]:
    """Return the hosts in `records` that have left the inventory (`nodes`), sorted."""
    return sorted(set(records) - set(nodes))


def still_hold(nodes: Dict[str, Json], records: Dict[str, Json]) -> List[str]:
    """Return the hosts of `gone` whose key is still the key of a host in `nodes`, sorted."""
    keys = {_ssh(records, host).get("public_key") for host in nodes} - {None, ""}
    return [host for host in gone(nodes, records) if _ssh(records, host).get("public_key") in keys]


def of_ssh(hostvars: Dict[str, Json], hosts: Sequence[str]) -> Dict[str, Json]:
    """Return {host: {variable: value}} for `hosts`, with the variables that this module reads.

    Args: `hostvars` {host: all host variables}.
    """
    return {
        host: {name: hostvars[host][name] for name in VARIABLES if name in hostvars[host]}
        for host in hosts
    }


def of_the_controller(variables: Dict[str, Json]) -> str:
    """Return the controller's block of known_hosts, from the host variable node_host_key.

    Args: `variables` {host: host variables}. The variable node_host_key is a key or a list of keys.
    """
    lines = []
    for host in sorted(variables):
        keys = variables[host].get("node_host_key") or []
        name, port = (
            variables[host].get("ansible_host") or host,
            port_of(host, variables[host].get("ansible_port")),
        )
        for key in [keys] if isinstance(keys, str) else keys:
            lines.append(
                "%s %s"
                % (name if port == 22 else "[%s]:%d" % (name, port), " ".join(key.split()[:2]))
            )
    return "\n".join(lines)


def port_of(host: str, value: Any) -> int:
    """Return the port of a host's sshd for the controller: `value`, or 22 for None or "".

    Args: `host` for the message; `value` of ansible_port without templates, an int or decimal
    digits. Raises BadInput if `value` is not a port.
    """
    try:
        port = to_int(value) if value not in (None, "") else 22
    except ValueError:
        port = 0
    if not 1 <= port <= 65535:
        raise BadInput(
            "%s: ansible_port=%s is refused: give a port from 1 to 65535 in the inventory"
            % (host, shown(value))
        )
    return port


def _key(text: str) -> str:
    """Return the public key `text` without its comment, or `text` itself for a placeholder."""
    return text if DRAFT.fullmatch(text) else node_records.public_key(" ".join(text.split(" ")[:2]))


def _ssh(records: Dict[str, Json], host: str) -> Json:
    return records.get(host, {}).get("ssh") or {}


def _port(records: Dict[str, Json], host: str) -> int:
    return int(_ssh(records, host).get("port") or 22)
