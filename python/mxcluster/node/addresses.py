"""Read the IPv4 addresses, ports and connections of this node from the kernel.

The functions run no other program and send no packet.
"""

import ipaddress
import os
import re
import socket
import struct
from typing import Dict, List, Optional, Tuple

from mxcluster.node import processes

RTM_GETADDR, RTM_NEWADDR, NLMSG_ERROR, NLMSG_DONE = 22, 20, 2, 3
NLM_F_REQUEST_DUMP = 0x301
IFA_ADDRESS, IFA_LOCAL = 1, 2
CARDS = "/sys/class/net"
DOCKERS = re.compile(r"br-[0-9a-f]{12}$")  # docker's bridge for a network of a user
TCP, TCP6 = "/proc/net/tcp", "/proc/net/tcp6"
LISTEN, ESTABLISHED, SYN_SENT = "0A", "01", "02"  # states of a socket in /proc/net/tcp
RETRANSMITS = 3  # retransmissions of data; with a short round trip, the third comes after 1.4 s


def interfaces() -> Dict[str, List[str]]:
    """Return the interfaces of this node with their IPv4 addresses.

        {"lo": ["127.0.0.1/8"], "eth0": ["10.0.0.5/24", ...], "eth1": []}

    Source: rtnetlink(7). The address of a label such as eth0:1 appears at the interface eth0.

    The result omits the bridges of docker networks. The result also omits an interface without an
    address, unless sysfs lists the interface as a network card. Container engines often create and
    remove such interfaces, and each change would alter the node record.
    """
    names = dict(socket.if_nameindex())
    found = {name: [] for name in names.values()}  # type: Dict[str, List[str]]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.bind((0, 0))
        # nlmsghdr (length, type, flags, sequence, pid) and ifaddrmsg (family, prefix, flags, scope,
        # index)
        link.send(
            struct.pack(
                "=IHHIIBBBBI", 24, RTM_GETADDR, NLM_F_REQUEST_DUMP, 1, 0, socket.AF_INET, 0, 0, 0, 0
            )
        )
        done = False
        while not done:
            addresses, done = parse_addresses(link.recv(65536))
            for index, address in addresses:
                if index in names:
                    found[names[index]].append(address)
    return {
        name: own
        for name, own in found.items()
        if (own or _is_device(name)) and not DOCKERS.match(name)
    }


def _is_device(name: str) -> bool:
    """Return True if sysfs lists the interface `name` as a network card, real or virtual."""
    return os.path.exists(os.path.join(CARDS, name, "device"))


def parse_addresses(data: bytes) -> Tuple[List[Tuple[int, str]], bool]:
    """Parse `data`, one part of the kernel's reply to RTM_GETADDR.

    Returns ([(interface index, "address/prefix"), ...], True for the last part). Raises OSError if
    the kernel reports an error.
    """
    found, offset = [], 0  # type: Tuple[List[Tuple[int, str]], int]
    while offset < len(data):
        length, kind = struct.unpack_from("=IH", data, offset)
        if kind == NLMSG_ERROR:
            number = -struct.unpack_from("=i", data, offset + 16)[0]
            raise OSError(number, "netlink: %s" % os.strerror(number))
        if kind == NLMSG_DONE:
            return found, True
        if kind == RTM_NEWADDR:
            prefix, index = data[offset + 17], struct.unpack_from("=I", data, offset + 20)[0]
            attributes = _attributes(data[offset + 24 : offset + length])
            # On a point-to-point link IFA_ADDRESS is the peer's address. IFA_LOCAL is always this
            # node's address.
            raw = attributes.get(IFA_LOCAL, attributes.get(IFA_ADDRESS))
            if raw is not None:
                found.append((index, "%s/%d" % (socket.inet_ntoa(raw), prefix)))
        offset += _padded(length)
    return found, False


def _attributes(data: bytes) -> Dict[int, bytes]:
    """Return {type: content} of `data`, a sequence of netlink attributes."""
    found, offset = {}, 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:
            break
        found[kind] = data[offset + 4 : offset + length]
        offset += _padded(length)
    return found


def _padded(length: int) -> int:
    return (length + 3) & ~3


def default_route_address() -> Optional[str]:
    """Return the source IPv4 address of the default route, or None without such a route.

    The function connects a UDP socket to 198.51.100.1, an address for documentation (RFC 5737). The
    kernel takes the source address from the routing table, and sends no packet. The result is also
    None if the source address is a loopback address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address


def interface_of(address: str, known: Dict[str, List[str]]) -> Optional[str]:
    """Return the name of the interface with `address`, or None without such an interface.

    `known`: the result of `interfaces`. An address such as 127.0.0.2 belongs to the interface with
    127.0.0.1/8, because Linux accepts every address of a loopback network.
    """
    wanted = ipaddress.IPv4Address(address)
    for name, addresses in known.items():
        for listed in map(ipaddress.IPv4Interface, addresses):
            if (
                listed.ip == wanted
                or wanted.is_loopback
                and listed.ip.is_loopback
                and wanted in listed.network
            ):
                return name
    return None


def can_bind(address: str, port: int) -> Optional[str]:
    """Return None if a process of this user can listen on address:port, else the kernel's error.

    Port 0 checks the address alone. The function sets SO_REUSEADDR, as ps-lite does. So a
    connection of an earlier job in TIME_WAIT leaves the port free, but a listening socket blocks
    the port.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return error.strerror or str(error)
    return None


def who_listens(address: str, port: int) -> Optional[str]:
    """Return "pid 123 (python)" for the process that listens on address:port, else None.

    The result is also None if /proc does not show the process to this user.
    """
    pid = listener(address, port)
    return None if pid is None else "pid %d (%s)" % (pid, processes.command_name(pid))


def listener(address: str, port: int) -> Optional[int]:
    """Return the pid of the process that listens on address:port, else None.

    The result is also None if /proc does not show the process to this user.
    """
    inodes = parse_listeners(_text(TCP), address, port)
    inodes |= parse_listeners(_text(TCP6), address, port)
    links = {"socket:[%s]" % inode for inode in inodes}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) if links else ():
        if _has_open(pid, links):
            return pid
    return None


def _has_open(pid: int, links: set) -> bool:
    """Return True if the process has one of the files `links` open, as far as /proc shows.

    The process may close other files meanwhile.
    """
    folder = "/proc/%d/fd" % pid
    try:
        found = os.listdir(folder)
    except OSError:  # the process has ended, or belongs to another user
        return False
    for name in found:
        try:
            if os.readlink(os.path.join(folder, name)) in links:
                return True
        except OSError:
            continue
    return False


def listeners(address: str) -> List[int]:
    """Return the ports on which a process listens at `address`, sorted."""
    return sorted(parse_ports(_text(TCP), address) | parse_ports(_text(TCP6), address))


def parse_ports(text: str, address: str) -> set:
    """Return the ports (set of int) of the sockets that listen at `address` or at all addresses.

    `text`: the content of /proc/net/tcp or tcp6.
    """
    return {
        int(fields[1].rpartition(":")[2], 16)
        for fields in (line.split() for line in text.splitlines()[1:])
        if fields[3] == LISTEN and fields[1].rpartition(":")[0] in _anybody(address)
    }


def parse_listeners(text: str, address: str, port: int) -> set:
    """Return the inodes (set of strings) of the sockets that listen on address:port.

    `text`: the content of /proc/net/tcp or tcp6. Sockets that listen on all IPv4 addresses count.
    Sockets that listen on all IPv6 addresses count, too. By default Linux passes IPv4 connections
    to such sockets.
    """
    places = {"%s:%04X" % (where, port) for where in _anybody(address)}
    return {
        fields[9]
        for fields in (line.split() for line in text.splitlines()[1:])
        if fields[3] == LISTEN and fields[1] in places
    }


def peers_of(address: str, port: int) -> List[str]:
    """Return the IPv4 addresses of the hosts that are connected to address:port, sorted.

    Returns [] if /proc is unreadable.
    """
    return sorted(parse_peers(_text(TCP), address, port))


def parse_peers(text: str, address: str, port: int) -> set:
    """Return the IPv4 addresses (set of strings) of the hosts connected to address:port.

    `text`: the content of /proc/net/tcp.
    """
    here, found = "%08X:%04X" % (struct.unpack("=I", socket.inet_aton(address))[0], port), set()
    for fields in (line.split() for line in text.splitlines()[1:]):
        if fields[1] == here and fields[3] == ESTABLISHED:
            found.add(socket.inet_ntoa(struct.pack("=I", int(fields[2].partition(":")[0], 16))))
    return found


def unanswered() -> set:
    """Return {(address, port)} of the peers that do not acknowledge data of this node.

    Returns an empty set if /proc is unreadable.
    """
    return parse_unanswered(_text(TCP))


def parse_unanswered(text: str) -> set:
    """Return {(address, port)} of the peers that do not acknowledge data of this node.

    `text`: the content of /proc/net/tcp. A peer counts after RETRANSMITS retransmissions. A
    connection that this node's process has closed counts, too, because the kernel still sends the
    remaining data.
    """
    found = set()
    for fields in (line.split() for line in text.splitlines()[1:]):
        if fields[3] not in (LISTEN, SYN_SENT) and int(fields[6], 16) >= RETRANSMITS:
            address, _, port = fields[2].partition(":")
            found.add((socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)))
    return found


def _text(path: str) -> str:
    """Return the text of the file `path`, or "" if the file is unreadable."""
    try:
        with open(path) as stream:
            return stream.read()
    except OSError:
        return ""


def _anybody(address: str) -> set:
    """Return `address` and the wildcard addresses in the notation of /proc/net/tcp and tcp6."""
    # The kernel prints the bytes as a number in native byte order.
    own = "%08X" % struct.unpack("=I", socket.inet_aton(address))[0]
    return {own, "0" * 8, "0" * 32, "0" * 16 + "FFFF0000" + own}
