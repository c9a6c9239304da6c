"""This machine's IPv4 addresses and ports, from the kernel; no other program is needed and nothing is sent out."""
import ipaddress
import os
import socket
import struct
from typing import Dict, List, Optional, Tuple

from mxcluster import processes

RTM_GETADDR, RTM_NEWADDR, NLMSG_ERROR, NLMSG_DONE = 22, 20, 2, 3
NLM_F_REQUEST_DUMP = 0x301
IFA_ADDRESS, IFA_LOCAL = 1, 2
LISTEN, ESTABLISHED, SYN_SENT = "0A", "01", "02"  # states of a socket in /proc/net/tcp
RETRANSMITS = 3  # of the same data without an acknowledgement: after 1.4 s where the round trip is short


def interfaces() -> Dict[str, List[str]]:
    """{"lo": ["127.0.0.1/8"], "eth0": ["10.0.0.5/24", ...], "eth1": []}: every interface with all its IPv4 addresses.

    From rtnetlink(7): labels such as eth0:1 do not matter there, an address belongs to its interface.
    """
    names = dict(socket.if_nameindex())
    found = {name: [] for name in names.values()}  # type: Dict[str, List[str]]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.bind((0, 0))
        # nlmsghdr (length, type, flags, sequence, pid) and ifaddrmsg (family, prefix, flags, scope, index)
        link.send(struct.pack("=IHHIIBBBBI", 24, RTM_GETADDR, NLM_F_REQUEST_DUMP, 1, 0, socket.AF_INET, 0, 0, 0, 0))
        done = False
        while not done:
            addresses, done = parse_addresses(link.recv(65536))
            for index, address in addresses:
                if index in names:
                    found[names[index]].append(address)
    return found


def parse_addresses(data: bytes) -> Tuple[List[Tuple[int, str]], bool]:
    """([(interface index, "address/prefix"), ...], whether this was the last part) from one answer to RTM_GETADDR.

    Raises OSError when the kernel answers with an error.
    """
    found, offset = [], 0
    while offset < len(data):
        length, kind = struct.unpack_from("=IH", data, offset)
        if kind == NLMSG_ERROR:
            number = -struct.unpack_from("=i", data, offset + 16)[0]
            raise OSError(number, "netlink: %s" % os.strerror(number))
        if kind == NLMSG_DONE:
            return found, True
        if kind == RTM_NEWADDR:
            prefix, index = data[offset + 17], struct.unpack_from("=I", data, offset + 20)[0]
            attributes = _attributes(data[offset + 24:offset + length])
            # On a point-to-point link IFA_ADDRESS is the other end's; IFA_LOCAL is always ours.
            raw = attributes.get(IFA_LOCAL, attributes.get(IFA_ADDRESS))
            if raw is not None:
                found.append((index, "%s/%d" % (socket.inet_ntoa(raw), prefix)))
        offset += _padded(length)
    return found, False


def _attributes(data: bytes) -> Dict[int, bytes]:
    """{type: content} of a run of netlink attributes."""
    found, offset = {}, 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:
            break
        found[kind] = data[offset + 4:offset + length]
        offset += _padded(length)
    return found


def _padded(length: int) -> int:
    return (length + 3) & ~3


def default_route_address() -> Optional[str]:
    """The IPv4 address from which this machine reaches the outside, None without a route there.

    Connecting a UDP socket only asks the routing table: no packet is sent. 198.51.100.1 is nobody's (RFC 5737).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address


def interface_of(address: str, known: Dict[str, List[str]]) -> Optional[str]:
    """The interface that has `address`, given `interfaces()`; None if there is none.

    A loopback address that is not listed belongs to the interface that holds 127.0.0.0/8: Linux owns all of them.
    """
    wanted = ipaddress.IPv4Address(address)
    for name, addresses in known.items():
        for listed in map(ipaddress.IPv4Interface, addresses):
            if listed.ip == wanted or wanted.is_loopback and listed.ip.is_loopback and wanted in listed.network:
                return name
    return None


def can_bind(address: str, port: int) -> Optional[str]:
    """None if a server of this user can listen on address:port now, else why not, in the kernel's words.

    Port 0 asks for the address alone. SO_REUSEADDR as ps-lite's sockets have it: connections of an earlier job in
    TIME_WAIT are no obstacle, a listening socket is.
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
    """"pid 123 (python)" for the process that listens on address:port, as far as this user may see it, else None."""
    pid = listener(address, port)
    return None if pid is None else "pid %d (%s)" % (pid, processes.command_name(pid))


def listener(address: str, port: int) -> Optional[int]:
    """The pid of the process that listens on address:port, as far as this user may see it, else None."""
    inodes = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as stream:
                inodes |= parse_listeners(stream.read(), address, port)
        except OSError:
            pass
    links = {"socket:[%s]" % inode for inode in inodes}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) if links else ():
        try:
            folder = "/proc/%d/fd" % pid
            if any(os.readlink(os.path.join(folder, fd)) in links for fd in os.listdir(folder)):
                return pid
        except OSError:  # ended meanwhile, or another user's
            continue
    return None


def listeners(address: str) -> List[int]:
    """The ports on which anybody listens at `address`, sorted."""
    found = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as stream:
                found |= parse_ports(stream.read(), address)
        except OSError:
            pass
    return sorted(found)


def parse_ports(text: str, address: str) -> set:
    """The ports of the sockets that `parse_listeners` would find for any of them."""
    return {int(fields[1].rpartition(":")[2], 16) for fields in (line.split() for line in text.splitlines()[1:])
            if fields[3] == LISTEN and fields[1].rpartition(":")[0] in _anybody(address)}


def parse_listeners(text: str, address: str, port: int) -> set:
    """The inodes (strings) of the sockets that listen on address:port, in the text of /proc/net/tcp or tcp6.

    Those that listen on all addresses count, also IPv6 ones: they take IPv4 connections too, unless told otherwise.
    """
    anybody, inodes = _anybody(address), set()
    for fields in (line.split() for line in text.splitlines()[1:]):
        where, _, number = fields[1].rpartition(":")
        if fields[3] == LISTEN and int(number, 16) == port and where in anybody:
            inodes.add(fields[9])
    return inodes


def peers_of(address: str, port: int) -> List[str]:
    """The IPv4 addresses that have a connection to address:port now, sorted; none if the kernel's table cannot be read."""
    try:
        with open("/proc/net/tcp") as stream:
            return sorted(parse_peers(stream.read(), address, port))
    except OSError:
        return []


def parse_peers(text: str, address: str, port: int) -> set:
    """The addresses at the other ends of the connections of address:port, in the text of /proc/net/tcp."""
    here, found = "%08X:%04X" % (struct.unpack("=I", socket.inet_aton(address))[0], port), set()
    for fields in (line.split() for line in text.splitlines()[1:]):
        if fields[1] == here and fields[3] == ESTABLISHED:
            found.add(socket.inet_ntoa(struct.pack("=I", int(fields[2].partition(":")[0], 16))))
    return found


def unanswered() -> set:
    """The (address, port) at the other ends of connections whose data is not acknowledged. Empty if /proc is unreadable."""
    try:
        with open("/proc/net/tcp") as stream:
            return parse_unanswered(stream.read())
    except OSError:
        return set()


def parse_unanswered(text: str) -> set:
    """The (address, port) of the other ends of unacknowledged connections in the text of /proc/net/tcp.

    A connection that its process has closed counts: the kernel still sends what is left.
    """
    found = set()
    for fields in (line.split() for line in text.splitlines()[1:]):
        if fields[3] not in (LISTEN, SYN_SENT) and int(fields[6], 16) >= RETRANSMITS:
            address, _, port = fields[2].partition(":")
            found.add((socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)))
    return found


def _anybody(address: str) -> set:
    """What /proc/net/tcp and tcp6 call `address`, and all addresses together."""
    ours = "%08X" % struct.unpack("=I", socket.inet_aton(address))  # the kernel prints the bytes as a native number
    return {ours, "0" * 8, "0" * 32, "0" * 16 + "FFFF0000" + ours}
