"""Sealed messages over TCP between the processes of an MPI job on different nodes.

A frame is 4 bytes with the length of its body, then the body: a message that is sealed with the
job's token (`mxcluster.seal`). A frame without a body is a beat (heartbeat). The payload of a
message begins with a line that names its receiver, so no other process accepts the message.
"""

import socket
import struct
import threading
import time
from typing import Optional

from mxcluster import seal

BEAT = 1.0  # seconds between two beats
MOST = 1 << 20  # bytes of the largest allowed message
_LENGTH = struct.Struct("!I")


class Channel:
    """One connection between two processes of the plan, `own` (this one) and `other`.

    `opener` opens the messages of all connections of this process, each message once. Only one
    thread may call `receive`. Any thread may call `send`.
    """

    def __init__(
        self, connection: socket.socket, token: bytes, opener: seal.Opener, own: str, other: str
    ):
        self.connection, self.token, self.opener = connection, token, opener
        self.own, self.other = own, other
        self.sending = threading.Lock()

    def send(self, kind: str, payload: str = "") -> None:
        """Send a message. Raises OSError if the connection is lost."""
        text = "%s\n%s" % (self.other, payload)
        self._put(seal.sealed(self.token, self.own, kind, text).encode("utf-8"))

    def beat(self) -> None:
        """Send a beat. Raises OSError if the connection is lost."""
        self._put(b"")

    def beat_on(self) -> None:
        """Send beats in a thread of its own until the connection is lost."""

        def beats() -> None:
            try:
                while True:
                    self.beat()
                    time.sleep(BEAT)
            except OSError:
                pass  # `receive` raises the error

        threading.Thread(target=beats, daemon=True).start()

    def receive(self, patience: Optional[float] = None) -> Optional[seal.Message]:
        """Return the next message, None for a beat.

        `patience` is in seconds, None for no limit. Raises OSError if the connection is lost or
        if nothing arrives in time, and seal.NotSealed if the message is too long or is not one of
        `other` to `own`.
        """
        self.connection.settimeout(patience)
        length = _LENGTH.unpack(self._take(_LENGTH.size))[0]
        if length == 0:
            return None
        if length > MOST:
            raise seal.NotSealed(
                "the message has %d bytes, and at most %d are allowed" % (length, MOST)
            )
        message = self.opener.opened(self._take(length))
        receiver, _, payload = message.payload.partition(b"\n")
        if (message.sender, receiver.decode("utf-8", "replace")) != (self.other, self.own):
            raise seal.NotSealed(
                "a message of %s arrived, and only messages of %s to %s are allowed"
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
    """Return a connection to address:port, where a process may still be starting.

    Raises OSError if no connection is made within `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((address, port), 5.0)
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)
