"""Measure the bandwidth between this node and its partners, one partner after another.

The plan gives each node its partner in each round. In a round each node has one partner at most, so
that no other transfer of the rendezvous shares the link of a node. The node whose name comes first
calls its partner, waits for READY, and sends bytes for SECONDS; then the partner sends. Each end
measures the bytes that it receives. No barrier ends a round: a node waits for its next partner.
"""

import os
import socket
import threading
import time
from typing import Callable, Dict, List, Optional, Sequence

from mxcluster.model.check_answer import Link

SECONDS = 0.25  # of sending in each direction
PATIENCE = 5.0  # seconds for a piece
START, ROUND = 30.0, 5.0  # seconds for all transfers of a node: START, and ROUND for each of them
PIECE, LEAST = 1 << 18, 16  # bytes of a piece, and the least number of pieces
READY = b"!"  # from the partner that was called, when its round begins


class Transfers:
    """The transfers of the node `host` with its `partners`, one in each round, "" for none."""

    def __init__(self, host: str, partners: Sequence[str]) -> None:
        self.host, self.partners = host, list(partners)
        self._arrived: Dict[str, socket.socket] = {}  # {partner: its open connection}
        self._changed = threading.Condition()

    def arrive(self, partner: str, connection: socket.socket) -> None:
        """Take over the connection of `partner`, which has proved that it has the job's token."""
        with self._changed:
            unused: Optional[socket.socket] = connection
            if partner in self.partners:
                unused = self._arrived.get(partner)  # an earlier one
                self._arrived[partner] = connection
            self._changed.notify_all()
        if unused:
            unused.close()

    def run(self, connect: Callable[[str], socket.socket]) -> List[Link]:
        """Carry out all transfers, and return the received bandwidth of each of them.

        A failed transfer has its error in place of a bandwidth. Args: `connect` returns an open
        connection to the partner of this name, or raises OSError or ValueError.
        """
        deadline = time.monotonic() + START + ROUND * len(self.partners)
        return [self._with(one, connect, deadline) for one in self.partners if one]

    def _with(self, partner: str, connect: Callable[[str], socket.socket], deadline: float) -> Link:
        is_first = self.host < partner
        try:
            with connect(partner) if is_first else self._of(partner, deadline) as connection:
                if is_first:
                    # The partner may still be in an earlier round. Its buffers must stay empty.
                    connection.settimeout(max(0.001, deadline - time.monotonic()))
                    if connection.recv(1) != READY:
                        raise ValueError("the partner has closed the connection")
                else:
                    connection.sendall(READY)
                connection.settimeout(PATIENCE)
                if is_first:
                    send(connection)
                received = receive(connection, deadline)
                if not is_first:
                    send(connection)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return Link(host=partner, error=why)
        return Link(host=partner, received=received)

    def _of(self, partner: str, deadline: float) -> socket.socket:
        """Wait for the connection of `partner`, and return it. Raises OSError after `deadline`."""
        with self._changed:
            wait = deadline - time.monotonic()
            if not self._changed.wait_for(lambda: partner in self._arrived, wait):
                raise OSError("%s has not connected" % partner)
            return self._arrived.pop(partner)


def send(connection: socket.socket) -> None:
    """Send bytes that no link can compress for SECONDS, then end the sending direction.

    A busy node may get no core for SECONDS. So the function sends at least LEAST pieces.
    """
    piece, count, deadline = os.urandom(PIECE), 0, time.monotonic() + SECONDS
    while count < LEAST or time.monotonic() < deadline:
        connection.sendall(piece)
        count += 1
    connection.shutdown(socket.SHUT_WR)


def receive(connection: socket.socket, deadline: float) -> float:
    """Receive until the end of the connection, and return the bandwidth in MB/s.

    The time counts from the first piece, which itself does not count. Raises OSError after
    `deadline`, a monotonic time, and if too few bytes came for a figure.
    """
    buffer, received = bytearray(4 * PIECE), 0
    size = connection.recv_into(buffer)
    began = time.monotonic()
    while size:
        size = connection.recv_into(buffer)
        received += size
        if time.monotonic() > deadline:
            raise OSError("the transfer took too long")
    seconds = time.monotonic() - began
    if not received or seconds <= 0:
        raise OSError("the partner sent too few bytes for a figure")
    return received / seconds / 1e6
