"""Send sealed messages over TCP between the processes of an MPI job on different nodes.

A frame is 4 bytes with the length of the body, then the body. The body is a message that is sealed
with the job's token (`mxcluster.seal`). A frame with an empty body is a heartbeat.

The first line of a message's payload names the receiver, so no other process accepts the message.
"""

import socket
import struct
import threading
import time
from typing import Optional

from mxcluster import seal

BEAT = 1.0  # seconds between two heartbeats
MOST = 1 << 20  # bytes of the largest allowed message
_LENGTH = struct.Struct("!I")


class Channel:
    """One connection from this process to another process of the job's plan.

    `own` and `other` are the names of the two processes. `opener` opens the messages of all
    connections of this process, and rejects repeated messages. Only one thread may call `receive`.
    Any thread may call `send`.
    """

    def __init__(
        self, connection: socket.socket, token: bytes, opener: seal.Opener, own: str, other: str
    ):
        self.connection, self.token, self.opener = connection, token, opener
        self.own, self.other = own, other
        self.sending = threading.Lock()

    def send(self, kind: str, payload: str = "") -> None:
        """Send `payload` in a sealed message of the kind `kind` (see `seal.sealed`).

        Raises OSError if the connection is lost.
        """
        text = "%s\n%s" % (self.other, payload)
        self._put(seal.sealed(self.token, self.own, kind, text).encode("utf-8"))

    def beat(self) -> None:
        """Send a heartbeat. Raises OSError if the connection is lost."""
        self._put(b"")

    def beat_on(self) -> None:
        """Send heartbeats in a separate thread until the connection is lost."""

        def beats() -> None:
            try:
                while True:
                    self.beat()
                    time.sleep(BEAT)
            except OSError:
                pass  # `receive` raises the error

        threading.Thread(target=beats, daemon=True).start()

    def receive(self, patience: Optional[float] = None) -> Optional[seal.Message]:
        """Wait for the next frame, and return the Message, or None for a heartbeat.

        `patience`: the timeout in seconds, None for no timeout. Raises OSError if the connection is
        lost or the timeout passes. Raises seal.NotSealed if the message is too long, or is not a
        message from `other` to `own`.
        """
        self.connection.settimeout(patience)
        length = _LENGTH.unpack(self._take(_LENGTH.size))[0]
        if length == 0:
            return None
        if length > MOST:
            raise seal.NotSealed(
                "the message has %d bytes, and at most %d bytes are allowed" % (length, MOST)
            )
        message = self.opener.opened(self._take(length))
        receiver, _, payload = message.payload.partition(b"\n")
        if (message.sender, receiver.decode("utf-8", "replace")) != (self.other, self.own):
            raise seal.NotSealed(
                "the message is from %s, and only messages from %s to %s are allowed"
                % (message.sender, self.other, self.own)
            )
        return seal.Message(message.sender, message.kind, payload)

    def _put(self, body: bytes) -> None:
        with self.sending:
            self.connection.sendall(_LENGTH.pack(len(body)) + body)

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.connection.recv(size - len(data))
            if not piece:
                raise ConnectionResetError("the other end has closed the connection")
            data += piece
        return data


def connect(address: str, port: int, patience: float) -> socket.socket:
    """Connect to address:port, where a process may still be starting, and return the socket.

    Raises OSError if no connection succeeds within `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((address, port), 5.0)
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)
