"""Sealed messages between the processes of an MPI job."""

import socket

import pytest

from mxcluster import seal
from mxcluster.node.mpi_channel import Channel

TOKEN = b"t" * 32


@pytest.fixture
def pair():
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def channel(end, own, other, token=TOKEN, opener=None):
    return Channel(end, token, opener or seal.Opener(token), own, other)


def test_messages_and_beats_arrive_in_order(pair):
    sender, receiver = channel(pair[0], "mpirun", "node-1"), channel(pair[1], "node-1", "mpirun")
    sender.beat()
    sender.send("launch", "echo ü\nwith a second line")
    assert receiver.receive(5) is None
    message = receiver.receive(5)
    assert (message.kind, message.payload.decode()) == ("launch", "echo ü\nwith a second line")


@pytest.mark.parametrize(
    "own, other, token",
    [
        ("mpirun", "node-1", b"x" * 32),  # another job's token
        ("mpirun", "node-2", TOKEN),  # a message to another node
        ("node-2", "node-1", TOKEN),  # a message of another process
    ],
)
def test_foreign_message_is_refused(pair, own, other, token):
    channel(pair[0], own, other, token).send("launch", "rm -r /")
    with pytest.raises(seal.NotSealed):
        channel(pair[1], "node-1", "mpirun").receive(5)


def test_copy_of_a_message_is_refused_on_another_connection(pair):
    channel(pair[0], "mpirun", "node-1").send("launch", "date")
    sent = pair[1].recv(4096)
    opener = seal.Opener(TOKEN)
    for expected in (True, False):
        one, two = socket.socketpair()
        one.sendall(sent)
        end = channel(two, "node-1", "mpirun", opener=opener)
        if expected:
            assert end.receive(5).payload == b"date"
        else:
            with pytest.raises(seal.NotSealed, match="a replay of an earlier message"):
                end.receive(5)
        one.close()
        two.close()


def test_silence_and_a_closed_connection_are_errors(pair):
    end = channel(pair[1], "node-1", "mpirun")
    with pytest.raises(OSError):
        end.receive(0.05)
    pair[0].close()
    with pytest.raises(OSError, match="closed the connection"):
        end.receive(5)
