"""Read the IPv4 addresses, ports and connections of this node from the kernel.

The functions run no other program and send no packet.
"""

import contextlib
import ctypes
import glob
import ipaddress
import os
import re
import socket
import struct
from typing import AbstractSet, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from mxcluster.node import processes

CARDS = "/sys/class/net"
DOCKERS = re.compile(r"br-[0-9a-f]{12}$")  # docker's bridge for a network of a user
TCP, TCP6 = "/proc/net/tcp", "/proc/net/tcp6"
LISTEN, ESTABLISHED, SYN_SENT = "0A", "01", "02"  # states of a socket in /proc/net/tcp
RETRANSMITS = 3  # retransmissions of data; with a short round trip, the third comes after 1.4 s


class Socket(NamedTuple):
    """A TCP socket in a table of the kernel. `local` and `remote` are (hexadecimal address, port).

    `inode` identifies the socket among the open files of a process.
    """

    local: Tuple[str, int]
    remote: Tuple[str, int]
    state: str
    retransmits: int
    inode: str


def interfaces() -> Dict[str, List[str]]:
    """Return the interfaces of this node with their IPv4 addresses.

        {"lo": ["127.0.0.1/8"], "eth0": ["10.0.0.5/24", ...], "eth1": []}

    The result omits the bridges of docker networks. The result also omits an interface without an
    address, unless sysfs lists the interface as a network card. Container engines often create and
    remove such interfaces, and each change would alter the node record.
    """
    found: Dict[str, List[str]] = {name: [] for _, name in socket.if_nameindex()}
    for name, address in ipv4_addresses():
        if name in found:  # not an interface that has just come
            found[name].append(address)
    return {
        name: own
        for name, own in found.items()
        if (own or os.path.exists(os.path.join(CARDS, name, "device"))) and not DOCKERS.match(name)
    }


# The two ends of a connection, each (hexadecimal address, port).
Connection = Tuple[Tuple[str, int], Tuple[str, int]]


class SocketAddress(ctypes.Structure):
    """A struct sockaddr_in of the C library."""

    _fields_ = [("family", ctypes.c_ushort), ("port", ctypes.c_ushort), ("ip", ctypes.c_ubyte * 4)]


class InterfaceAddress(ctypes.Structure):
    """The first fields of a struct ifaddrs, an item of a linked list."""


InterfaceAddress._fields_ = [
    ("next", ctypes.POINTER(InterfaceAddress)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(SocketAddress)),
    ("netmask", ctypes.POINTER(SocketAddress)),
]


def ipv4_addresses() -> List[Tuple[str, str]]:
    """Return (interface, "address/prefix") of each IPv4 address of this node.

    Source: getifaddrs(3). The address of a label such as eth0:1 appears at the interface eth0.
    """
    library, first = ctypes.CDLL(None, use_errno=True), ctypes.POINTER(InterfaceAddress)()
    if library.getifaddrs(ctypes.byref(first)) != 0:
        raise OSError(ctypes.get_errno(), "getifaddrs: " + os.strerror(ctypes.get_errno()))
    found, item = [], first
    while item:
        entry = item.contents
        if entry.address and entry.address.contents.family == socket.AF_INET:
            ip, mask = (bytes(one.contents.ip) for one in (entry.address, entry.netmask))
            prefix = bin(int.from_bytes(mask, "big")).count("1")
            name = os.fsdecode(entry.name).split(":")[0]
            found.append((name, "%s/%d" % (socket.inet_ntoa(ip), prefix)))
        item = entry.next
    library.freeifaddrs(first)
    return found


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


def interface_of(address: str, known: Mapping[str, Sequence[str]]) -> Optional[str]:
    """Return the name of the interface with `address`, or None without such an interface.

    `known`: the result of `interfaces`. An address such as 127.0.0.2 belongs to the interface with
    127.0.0.1/8, because Linux accepts every address of a loopback network.
    """
    ip = ipaddress.IPv4Address(address)
    for name, listed in known.items():
        for one in map(ipaddress.IPv4Interface, listed):
            if one.ip == ip or ip.is_loopback and ip in one.network:
                return name
    return None


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens on address:port with ps-lite's options.

    Closed connections of an earlier job (TIME_WAIT) do not block the port. Raises OSError if the
    port is taken.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def can_bind(address: str, port: int) -> Optional[str]:
    """Return None if a process of this user can listen on address:port, else the kernel's error.

    Port 0 checks the address alone.
    """
    try:
        listen(address, port).close()
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
    links = {"socket:[%s]" % one.inode for one in _listening(address) if one.local[1] == port}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) if links else ():
        for path in glob.glob("/proc/%d/fd/*" % pid):  # none of a process of another user
            with contextlib.suppress(OSError):  # the process may close files meanwhile
                if os.readlink(path) in links:
                    return pid
    return None


def listeners(address: str) -> List[int]:
    """Return the ports on which a process listens at `address`, sorted."""
    return sorted({one.local[1] for one in _listening(address)})


def peers_of(address: str, port: int) -> List[str]:
    """Return the IPv4 addresses of the hosts that are connected to address:port, sorted.

    Returns [] if /proc is unreadable.
    """
    return sorted(
        {
            _dotted(one.remote[0])
            for one in _sockets(TCP)
            if one.local == (_hexadecimal(address), port) and one.state == ESTABLISHED
        }
    )


def connections() -> Set[Connection]:
    """Return all TCP connections of this node, an empty set if /proc is unreadable."""
    return {(one.local, one.remote) for one in _sockets(TCP) if one.state != LISTEN}


def unanswered(earlier: AbstractSet[Connection] = frozenset()) -> Set[Tuple[str, int]]:
    """Return {(address, port)} of the peers that do not acknowledge data of this node.

    A peer counts after RETRANSMITS retransmissions. A connection that this node's process has
    closed counts, too, because the kernel still sends the remaining data. Returns an empty set if
    /proc is unreadable.

    Args: `earlier` connections that do not count. After the end of a job the kernel retransmits to
    a node without power for minutes, and the next job may use the same ports of this node.
    """
    return {
        (_dotted(one.remote[0]), one.remote[1])
        for one in _sockets(TCP)
        if one.state not in (LISTEN, SYN_SENT)
        and one.retransmits >= RETRANSMITS
        and (one.local, one.remote) not in earlier
    }


def _listening(address: str) -> List[Socket]:
    """Return the sockets that listen at `address` or at all addresses.

    By default Linux passes IPv4 connections to sockets that listen on all IPv6 addresses.
    """
    own = _hexadecimal(address)
    places = {own, "0" * 8, "0" * 32, "0" * 16 + "FFFF0000" + own}
    both = _sockets(TCP) + _sockets(TCP6)
    return [one for one in both if one.state == LISTEN and one.local[0] in places]


def _sockets(path: str) -> List[Socket]:
    """Return the sockets in a table of the kernel, [] if the file is unreadable."""
    try:
        with open(path) as stream:
            rows = [line.split() for line in stream.read().splitlines()[1:]]
    except OSError:
        return []
    return [Socket(_place(row[1]), _place(row[2]), row[3], int(row[6], 16), row[9]) for row in rows]


def _place(text: str) -> Tuple[str, int]:
    address, _, port = text.partition(":")
    return address, int(port, 16)


def _hexadecimal(address: str) -> str:
    """Return an IPv4 address as the kernel prints it: as a number in native byte order."""
    return "%08X" % struct.unpack("=I", socket.inet_aton(address))[0]


def _dotted(hexadecimal: str) -> str:
    return socket.inet_ntoa(struct.pack("=I", int(hexadecimal, 16)))
