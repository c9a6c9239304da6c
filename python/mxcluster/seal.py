"""Seal messages between the processes of a job with the job's token, and open these messages.

Only `read_token` reads a file. A sealed message is a string::

    mxcluster 1 SENDER NONCE MAC
    KIND
    PAYLOAD

MAC is the HMAC-SHA256 of SENDER, NONCE, KIND and PAYLOAD, with the token as the key. No message
holds the token itself. A receiver accepts each NONCE once, and so refuses a replayed message.
"""

import hashlib
import hmac
import os
import re
import stat
import uuid
from typing import NamedTuple, Optional, Set

from mxcluster.errors import MxclusterError

TOKEN = "token"  # the file in the job folder
_HEAD = re.compile(
    rb"mxcluster 1 ([A-Za-z0-9._-]{1,64}) ([0-9a-f]{32}) ([0-9a-f]{64})\n([a-z]{1,32})\n"
)


class Message(NamedTuple):
    """An opened message."""

    sender: str
    kind: str
    payload: bytes


class NotSealed(MxclusterError):
    """Error for a message without a valid seal of this job, or for a replayed message."""


def read_token(folder: str) -> bytes:
    """Return the job's token (bytes) from its file in the job folder.

    Raises MxclusterError if the file cannot be read, is readable by other users, or is too short.
    """
    path = os.path.join(folder, TOKEN)
    try:
        with open(path, "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            token = stream.read().strip()
    except OSError as error:
        raise MxclusterError(
            "the job's token cannot be read from %s (%s): start the job again with train.yml, "
            "which writes this file" % (path, error.strerror)
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise MxclusterError(
            "%s, the job's token, can be read by other users (mode %04o instead of 0600): start "
            "the job again with train.yml" % (path, stat.S_IMODE(mode))
        )
    if len(token) < 32:
        raise MxclusterError(
            "%s, the job's token, is shorter than 32 characters: start the job again "
            "with train.yml" % path
        )
    return token


def sealed(token: bytes, sender: str, kind: str, payload: str) -> str:
    """Return `payload` as a sealed message.

    `sender`: a process such as "worker-0". `kind`: a lower-case word that tells the receiver what
    to do with `payload`.
    """
    nonce = uuid.uuid4().hex
    mac = _mac(token, sender.encode(), nonce.encode(), kind.encode(), payload.encode("utf-8"))
    return "mxcluster 1 %s %s %s\n%s\n%s" % (sender, nonce, mac, kind, payload)


class Opener(object):
    """A receiver that opens messages sealed with `token`, and refuses replayed messages."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._seen: Set[bytes] = set()

    def opened(self, body: Optional[bytes]) -> Message:
        """Check the sealed message `body` (None counts as empty), and return the Message.

        The payload of the Message is bytes. Raises NotSealed with the reason if `body` is not a
        sealed message of this job, or is a replayed message.
        """
        body = body or b""
        found = _HEAD.match(body)
        if not found:
            raise NotSealed("the message is not sealed, so another program sent the message")
        sender, nonce, mac, kind = found.groups()
        payload = body[found.end() :]
        if not hmac.compare_digest(_mac(self._token, sender, nonce, kind, payload).encode(), mac):
            raise NotSealed(
                "the message is sealed with a wrong token (sender %s): another job or program sent "
                "the message" % sender.decode()
            )
        if nonce in self._seen:
            raise NotSealed("the message is a replay of an earlier message of %s" % sender.decode())
        self._seen.add(nonce)
        return Message(sender.decode(), kind.decode(), payload)


def proof(token: bytes, *parts: object) -> str:
    """Return the HMAC-SHA256 (64 hexadecimal digits) of `parts` (strings or numbers) with `token`.

    The result proves that the sender of `parts` has the token.
    """
    return _mac(token, b"proof", *[str(part).encode("utf-8") for part in parts])


def proves(token: bytes, given: object, *parts: object) -> bool:
    """Return True if `given`, any value from the network, is the `proof` of `parts` for `token`."""
    return isinstance(given, str) and hmac.compare_digest(
        given.encode("utf-8", "replace"), proof(token, *parts).encode()
    )


def _mac(token: bytes, *parts: bytes) -> str:
    digest = hmac.new(token, digestmod=hashlib.sha256)
    for part in parts:
        digest.update(b"%d:" % len(part) + part)  # the length separates the parts
    return digest.hexdigest()
