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
from typing import Dict, List, Mapping, Sequence

from mxcluster.errors import BadInput, for_each, refuse
from mxcluster.lists import grouped, unique
from mxcluster.model import shapes
from mxcluster.model.host_variables import SSH, Given, HostVariables, read_by
from mxcluster.model.names import public_key, user_name
from mxcluster.model.node_record import NodeRecord, Ssh
from mxcluster.model.record import Record, field

Records = Mapping[str, NodeRecord]
Variables = Mapping[str, HostVariables]  # of each host in Nodes


class Node(Record):
    """A node of the whole cluster."""

    address: str = field(shapes.text)
    """The planned address for training."""


Nodes = Mapping[str, Node]

DRAFT = re.compile(r"\(the (key that [^\s\"]+ is going to make|host keys of [^\s\"]+)\)")
# A host name, an address (IPv6 with its zone), an inventory name. The characters '*', '?', '!',
# ',', '|' and '@' have a special meaning in ssh's files.
NAME = shapes.matching(r"[A-Za-z0-9_:][A-Za-z0-9_.:%/+-]*", "one name or address", 255)
ORIGIN = shapes.matching(
    r"[A-Za-z0-9_.:%/*?!-]+", "an address, a pattern or a network that ssh's from= accepts", 255
)


def blocks(
    nodes: Nodes, records: Records, variables: Variables, key_file: str, draft: bool = False
) -> Dict[str, str]:
    """Return {"authorized_keys", "known_hosts", "config"}, the text of the block for each file.

    Args:
        nodes: {host: node} of the whole cluster.
        records: {host: node record}.
        variables: {host: host variables}.
        key_file: the path of the private key in ssh's configuration.
        draft: True to write placeholders for unknown keys (check mode).

    Raises BadInput if a node's key is unknown, or if ssh's files cannot contain a value.
    """
    if not draft:
        recorded = [host for host in nodes if host in records]
        for_each(lambda host: records[host].refuse_damaged(), recorded)
        refuse(
            "%s: the controller lacks the ssh keys of this node: run provision.yml without --limit"
            % host
            for host in nodes
            if not _ssh(records, host).public_key
        )
    names = names_of(nodes, variables)
    found = {"authorized_keys": [], "known_hosts": [], "config": []}  # type: Dict[str, List[str]]
    try:
        found["authorized_keys"] += authorized(nodes, records, variables)
        for host, node in nodes.items():
            found["known_hosts"] += known(host, names[host], records)
            found["config"] += configured(host, node, names[host], records, key_file)
    except shapes.Wrong as wrong:
        raise BadInput(
            "mxcluster cannot write ssh's files: %s is not %s. If the value is in the inventory (a "
            "host's name, ansible_host, ssh_mesh_from), correct the inventory. Otherwise run "
            "provision.yml for the node with this value" % (wrong.shown, wrong.what)
        ) from None
    found["config"] += ["# The next lines apply to all hosts.", "Match all"]
    return {name: "\n".join(lines) for name, lines in found.items()}


def authorized(nodes: Nodes, records: Records, variables: Variables) -> List[str]:
    """Return the lines of authorized_keys, one for each key.

    A line limits its key to the planned addresses of the nodes with this key, and ssh_mesh_from.

    The arguments are those of `blocks`.
    """
    holders = grouped(
        (_ssh(records, host).public_key or "(the key that %s is going to make)" % host, host)
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


def origins_of(nodes: Nodes, variables: Variables) -> Dict[str, List[str]]:
    """Return {host: the addresses from which its ssh connections may come}.

    These are the planned address and ssh_mesh_from. The arguments are those of `blocks`.
    """
    return {host: [node.address, *variables[host].ssh_mesh_from] for host, node in nodes.items()}


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


def known(host: str, names: Sequence[str], records: Records) -> List[str]:
    """Return the lines of known_hosts for the node `host`, one for each of its host keys.

    Args: `names` the node's names and addresses; `records` {host: node record}.
    """
    port = _ssh(records, host).port
    patterns = ",".join(_pattern(NAME(name), port) for name in names)
    keys = records[host].host_keys if host in records else []
    keys = keys or ["(the host keys of %s)" % host]
    return ["%s %s" % (patterns, _key(key)) for key in keys]


def configured(
    host: str, node: Node, names: Sequence[str], records: Records, key_file: str
) -> List[str]:
    """Return the lines of ssh's configuration that make `ssh <host>` reach the node `host`.

    Args: `names` of the node, from `names_of`; `records` and `key_file` as in `blocks`.
    """
    ssh = _ssh(records, host)
    lines = [
        "Host " + " ".join(map(NAME, names)),
        "    HostName " + NAME(node.address),
        "    IdentityFile " + key_file,
    ]
    if ssh.port != 22:
        lines.append("    Port %d" % ssh.port)
    if ssh.user:
        lines.append("    User " + user_name(ssh.user))
    return lines


def names_of(nodes: Nodes, variables: Variables) -> Dict[str, List[str]]:
    """Return {host: its names and addresses, each once}: inventory name, ansible_host, address.

    A name that two nodes have belongs to neither. Only inventory names always stay, and a planned
    address that no other node has as its name or ansible_host: without node_address the address is
    a fact of the node, and a node must not take the address of another node. No node except one
    with this inventory name is called localhost.

    The arguments are those of `blocks`.
    """
    given = {host: {host, variables[host].ansible_host or host} for host in nodes}
    names = {
        host: unique(
            name
            for name in [host, variables[host].ansible_host, node.address]
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
            or (name == nodes[host].address and (name in given[host] or not holders[name]))
        ]
        for host, found in names.items()
    }


def gone(nodes: Nodes, records: Records) -> List[str]:
    """Return the hosts in `records` that have left the inventory (`nodes`), sorted."""
    return sorted(set(records) - set(nodes))


def still_hold(nodes: Nodes, records: Records) -> List[str]:
    """Return the hosts of `gone` whose key is still the key of a host in `nodes`, sorted."""
    keys = {_ssh(records, host).public_key for host in nodes} - {""}
    return [host for host in gone(nodes, records) if records[host].ssh.public_key in keys]


def of_ssh(hostvars: Given, hosts: Sequence[str]) -> Given:
    """Return {host: {variable: value}} for `hosts`, with the variables that this module reads.

    Args: `hostvars` {host: all host variables}.
    """
    names = read_by(SSH)
    return {
        host: {name: hostvars[host][name] for name in names if name in hostvars[host]}
        for host in hosts
    }


def of_the_controller(variables: Variables) -> str:
    """Return the controller's block of known_hosts, from the host variable node_host_key."""
    lines = []
    for host, own in sorted(variables.items()):
        name, port = own.ansible_host or host, own.ansible_port
        for key in own.node_host_key:
            lines.append("%s %s" % (_pattern(name, port), " ".join(key.split()[:2])))
    return "\n".join(lines)


def _pattern(name: str, port: int) -> str:
    """Return a host name or address in the form of known_hosts."""
    return name if port == 22 else "[%s]:%d" % (name, port)


def _key(text: str) -> str:
    """Return the public key `text` without its comment, or `text` itself for a placeholder."""
    return text if DRAFT.fullmatch(text) else public_key(" ".join(text.split(" ")[:2]))


def _ssh(records: Records, host: str) -> Ssh:
    return records[host].ssh if host in records else Ssh()
