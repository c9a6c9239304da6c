"""The bandwidth between nodes, with real sockets on loopback addresses."""

import socket
import threading
import time

import pytest

from mxcluster.node import bandwidth, rendezvous
from tests.unit.node.test_rendezvous import PEERS, TOKEN, own

PARTNERS = {"a": ["b", "c", ""], "b": ["a", "", "c"], "c": ["", "a", "b"]}


def measured(*hosts):
    """Run the rendezvous and the transfers of these hosts; return {host: its links}."""
    parts = {}
    for host in hosts:
        arguments = ("job-1", host, own(host), PEERS, 60.0, TOKEN, PARTNERS[host])
        parts[host] = rendezvous.Rendezvous(*arguments)
    threads = [threading.Thread(target=part.run, name=host) for host, part in parts.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {host: part.result().links for host, part in parts.items()}


def test_each_node_measures_what_its_partners_send(monkeypatch):
    monkeypatch.setattr(bandwidth, "SECONDS", 0.0)  # as on a busy node
    found = measured("a", "b", "c")
    for host, links in found.items():
        assert [one.host for one in links] == [one for one in PARTNERS[host] if one], links
        assert all(one.error == "" and one.received > 1 for one in links), links


@pytest.mark.slow
def test_a_slow_sender_is_slow_in_the_figure_of_its_partner(monkeypatch):
    """Each piece of the slow node takes 20 ms longer, so that it sends about 13 MB/s."""
    monkeypatch.setattr(bandwidth, "SECONDS", 0.2)
    fast = bandwidth.send

    class Slow:
        def __init__(self, connection):
            self.connection = connection

        def sendall(self, piece):
            time.sleep(0.02)
            self.connection.sendall(piece)

        def shutdown(self, how):
            self.connection.shutdown(how)

    def send(connection):
        fast(Slow(connection) if threading.current_thread().name == "a" else connection)

    monkeypatch.setattr(bandwidth, "send", send)
    found = measured("a", "b", "c")
    of_a = [one.received for host in "bc" for one in found[host] if one.host == "a"]
    others = [one.received for host in "bc" for one in found[host] if one.host != "a"]
    assert len(of_a) == len(others) == 2 and max(of_a) < 0.5 * min(others), found


def test_a_partner_that_never_comes_is_an_error(monkeypatch):
    monkeypatch.setattr(bandwidth, "START", 0.0)
    monkeypatch.setattr(bandwidth, "ROUND", 0.05)

    def connect(partner):
        raise ConnectionRefusedError(111, "Connection refused")

    links = bandwidth.Transfers("b", ["a", "c", ""]).run(connect)
    assert [(one.host, one.received, one.error) for one in links] == [
        ("a", None, "a has not connected"),
        ("c", None, "Connection refused"),
    ]


@pytest.mark.parametrize("sent, words", [(b"", "too few bytes"), (b"x", "timed out")])
def test_a_partner_that_sends_too_little_is_an_error(monkeypatch, sent, words):
    monkeypatch.setattr(bandwidth, "PATIENCE", 0.05)
    here, there = socket.socketpair()
    with there:
        there.sendall(sent)
        if not sent:
            there.shutdown(socket.SHUT_WR)
        transfers = bandwidth.Transfers("b", ["a"])
        transfers.arrive("a", here)
        links = transfers.run(lambda partner: here)
    assert words in links[0].error, links


def test_a_partner_that_drips_is_an_error():
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"x" * 10)
        stop = threading.Event()

        def drip():
            while not stop.wait(0.005):
                there.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            bandwidth.receive(here, time.monotonic() + 0.1)
            raise AssertionError("the transfer has no end")
        except OSError as error:
            assert "took too long" in str(error)
        finally:
            stop.set()
            thread.join()


def test_the_connections_of_strangers_and_earlier_ones_are_closed():
    transfers = bandwidth.Transfers("b", ["a"])
    pairs = [socket.socketpair() for _ in range(3)]
    for partner, (here, _) in zip(("evil", "a", "a"), pairs):
        transfers.arrive(partner, here)
    assert [here.fileno() == -1 for here, _ in pairs] == [True, True, False]
    for pair in pairs:
        for one in pair:
            one.close()
