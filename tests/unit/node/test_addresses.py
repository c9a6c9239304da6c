"""Addresses and ports of this machine."""

import os
import pathlib
import socket
import subprocess

import pytest

import mxcluster
from mxcluster.node import addresses
from tests import needs
from tests.networks import own_network
from tests.pythons import python_of
from tests.waiting import until

ADDRESS = own_network() + ".11"
KNOWN = {"lo": ["127.0.0.1/8"], "eth0": ["10.0.0.5/24", "10.0.1.5/16"], "ib0": []}


def test_interfaces_have_bindable_addresses():
    cards = {path.parent.name for path in pathlib.Path("/sys/class/net").glob("*/device")}

    def of_ip():
        found = {name: [] for name in cards}
        for line in subprocess.check_output(["ip", "-4", "-o", "address"]).decode().splitlines():
            name, address = line.split()[1], line.split()[3].split("/")[0]
            if not addresses.DOCKERS.match(name):
                found.setdefault(name, []).append(address)
        return found

    def of_module():
        known = addresses.interfaces().items()
        return {name: [one.split("/")[0] for one in listed] for name, listed in known}

    # Interfaces of other programs come and go between the two answers.
    until(
        lambda: of_module() == of_ip(),
        evidence=lambda: "%s\n%s" % (of_module(), of_ip()),
    )
    known = addresses.interfaces()
    assert "127.0.0.1/8" in known["lo"], known
    for listed in known.values():
        for address in listed:
            assert addresses.can_bind(address.split("/")[0], 0) is None, (address, known)


@pytest.mark.slow
@needs.root
@pytest.mark.parametrize("version", ["3.6", "controller"])
def test_labels_and_point_to_point_links_have_the_nodes_address(version):
    program = "from mxcluster.node import addresses; print(addresses.interfaces())"
    script = (
        "ip link set lo up && ip address add 10.8.0.2 peer 10.8.0.1/32 dev lo && "
        "ip address add 10.0.0.5/24 dev lo label lo:1 && exec %s -c '%s'"
    ) % (python_of(version), program)
    package = os.path.dirname(os.path.dirname(mxcluster.__file__))
    told = subprocess.check_output(
        ["unshare", "--net", "sh", "-c", script], env=dict(os.environ, PYTHONPATH=package)
    )
    assert told == b"{'lo': ['127.0.0.1/8', '10.8.0.2/32', '10.0.0.5/24']}\n"


def test_an_interface_without_addresses_is_a_device(monkeypatch, tmp_path):
    """The ends of containers' networks come and go; a card without an address can be named."""
    others = [(90001, "veth12ab"), (90002, "eth9")]
    known = socket.if_nameindex()
    monkeypatch.setattr(socket, "if_nameindex", lambda: known + others)
    monkeypatch.setattr(addresses, "CARDS", str(tmp_path))
    (tmp_path / "eth9" / "device").mkdir(parents=True)
    found = addresses.interfaces()
    assert found["eth9"] == [] and "veth12ab" not in found and found["lo"]


@pytest.mark.parametrize(
    "name, appears",
    [("br-0123456789ab", False), ("br-lan", True), ("br0", True), ("docker0", True)],
)
def test_a_bridge_of_a_docker_network_does_not_appear(monkeypatch, name, appears):
    """Docker names it after the network's id."""
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(7, name)])
    monkeypatch.setattr(addresses, "ipv4_addresses", lambda: [(name, "172.18.0.1/16")])
    assert (name in addresses.interfaces()) == appears


def test_the_address_of_the_default_route_is_one_of_the_interfaces():
    address = addresses.default_route_address()
    assert address is None or addresses.interface_of(address, addresses.interfaces()), (
        address,
        addresses.interfaces(),
    )


@pytest.mark.parametrize(
    "address, interface", [("10.0.1.5", "eth0"), ("127.0.0.11", "lo"), ("10.0.0.6", None)]
)
def test_the_interface_of_an_address(address, interface):
    assert addresses.interface_of(address, KNOWN) == interface


def test_can_bind_reports_taken_and_foreign_addresses():
    with socket.socket() as server:
        server.bind((ADDRESS, 0))
        port = server.getsockname()[1]
        server.listen(1)
        assert addresses.can_bind(ADDRESS, port) == "Address already in use"
        assert addresses.can_bind(own_network() + ".12", port) is None, "another address"
    assert addresses.can_bind(ADDRESS, port) is None
    assert addresses.can_bind("203.0.113.9", 0) == "Cannot assign requested address"


def test_can_bind_ignores_a_connection_in_time_wait():
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((ADDRESS, 0))
        server.listen(1)
        port = server.getsockname()[1]
        with socket.create_connection((ADDRESS, port)) as client:
            accepted, _ = server.accept()
            accepted.close()  # the side that closes first, the server, has the TIME_WAIT
            client.recv(1)
    assert addresses.can_bind(ADDRESS, port) is None


@pytest.mark.parametrize("listening", [ADDRESS, "0.0.0.0"], ids=["own", "any"])
def test_who_listens_names_the_process(listening):
    with socket.socket() as server:
        server.bind((listening, 0))
        port = server.getsockname()[1]
        assert addresses.who_listens(ADDRESS, port) is None, "bound, but without listening yet"
        server.listen(1)
        command = pathlib.Path("/proc/self/comm").read_text().strip()
        assert addresses.who_listens(ADDRESS, port) == "pid %d (%s)" % (os.getpid(), command)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Return a function that replaces the kernel's table of TCP sockets."""

    def write(*rows):
        (tmp_path / "tcp").write_text("\n".join(("  sl  local_address",) + rows))
        monkeypatch.setattr(addresses, "TCP", str(tmp_path / "tcp"))
        monkeypatch.setattr(addresses, "TCP6", str(tmp_path / "absent"))

    return write


def test_listeners_are_parsed_from_the_kernels_table(table):
    own, other = "0B00007F", "0C00007F"
    places = (
        *((own, "0A"), (other, "0A"), ("0" * 8, "0A"), (own, "01"), ("0" * 32, "0A")),
        ("0" * 16 + "FFFF0000" + own, "0A"),
    )
    row = "%d: %s:238%d 00000000:0000 %s 00000000:00000000 00:00000000 00000000 0 0 %d 1"
    table(*(row % (i, where, i, state, i) for i, (where, state) in enumerate(places)))
    assert addresses.listeners("127.0.0.11") == [0x2380, 0x2382, 0x2384, 0x2385]


def test_unanswered_connections_are_parsed_from_the_kernels_table(table):
    """The table is the kernel's while a rule dropped the packets of 10.203.0.2."""
    table(
        "   0: 0200CB0A:23E9 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0 0 1",
        "   1: 0200CB0A:D01C 0100CB0A:23E7 01 00000113:00000000 01:000000AD 00000004  0 0 2",
        "   2: 0200CB0A:D440 0100CB0A:23E9 09 0000005B:00000000 01:0000000E 00000005  0 0 0",
        "   3: 0200CB0A:9D92 0100CB0A:23E8 01 00000025:00000000 01:00000003 00000002  0 0 3",
        "   4: 0200CB0A:9D93 0100CB0A:23EA 02 00000001:00000000 01:00000003 00000006  0 0 4",
        "   5: 0200CB0A:9D94 0100CB0A:23EB 01 00000000:00000000 00:00000000 00000000  0 0 5",
    )
    assert addresses.unanswered() == {("10.203.0.1", 0x23E7), ("10.203.0.1", 0x23E9)}


def test_connections_of_an_earlier_job_are_not_those_of_this_one(table):
    """The kernel still retransmits to a node that lost its power; a new job has the same ports."""
    old = "   0: 0200CB0A:D440 0100CB0A:23E9 04 0000005B:00000000 01:0000000E 00000005  0 0 0"
    table(old)
    earlier = addresses.connections()
    assert addresses.unanswered(earlier) == set()
    table(old, "   1: 0200CB0A:D441 0100CB0A:23E9 01 00000025:00000000 01:00000003 00000003  0 0 3")
    assert addresses.unanswered(earlier) == {("10.203.0.1", 0x23E9)}


def test_peers_of_a_port_are_connected_addresses():
    with socket.socket() as listener:
        listener.bind((ADDRESS, 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        assert addresses.peers_of(ADDRESS, port) == []
        with socket.create_connection((ADDRESS, port)):
            assert addresses.peers_of(ADDRESS, port) == ["127.0.0.1"]
