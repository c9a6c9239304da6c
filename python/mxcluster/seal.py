"""The seal on what workers tell servers: only who has the job's token can make it (pure, but for
reading the token's file).

A sealed message is a text::

    mxcluster 1 SENDER NONCE MAC
    KIND
    PAYLOAD

MAC is the HMAC-SHA256 of all the rest under the token, so that the token itself never goes over the
network; a NONCE is taken once, so that a message which somebody has seen there cannot be sent
again.
"""

import collections
import hashlib
import hmac
import os
import re
import stat
import uuid

from mxcluster.errors import MxclusterError

TOKEN = "token"  # the file in the job's folder
_HEAD = re.compile(br"mxcluster 1 ([A-Za-z0-9._-]{1,64}) ([0-9a-f]{32}) ([0-9a-f]{64})\n([a-z]{1,32})\n")

Message = collections.namedtuple("Message", "sender kind payload")


class NotSealed(MxclusterError):
    """A message that does not come from this job, as far as it can prove it."""


def read_token(folder):
    """The job's token (bytes) from the file in the job's folder.  MxclusterError if it is not there, or not private."""
    path = os.path.join(folder, TOKEN)
    try:
        with open(path, "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            token = stream.read().strip()
    except (IOError, OSError) as error:
        raise MxclusterError("the job's token cannot be read from %s (%s): train.yml puts it there when it starts the job"
                             % (path, error.strerror)) from error
    if stat.S_IMODE(mode) & 0o077:
        raise MxclusterError("%s, the job's token, can be read by others (mode %04o): it must be 0600; start the job anew"
                             % (path, stat.S_IMODE(mode)))
    if len(token) < 32:
        raise MxclusterError("%s, the job's token, is shorter than 32 characters: start the job anew" % path)
    return token


def sealed(token, sender, kind, payload):
    """The message (str) that carries `payload` (str) of this `kind` from `sender`, such as "worker-0"."""
    nonce = uuid.uuid4().hex
    mac = _mac(token, sender.encode(), nonce.encode(), kind.encode(), payload.encode("utf-8"))
    return "mxcluster 1 %s %s %s\n%s\n%s" % (sender, nonce, mac, kind, payload)


class Opener(object):
    """Opens what was sealed with the same token, each message once."""

    def __init__(self, token):
        self._token, self._seen = token, set()

    def opened(self, body):
        """The Message in `body` (bytes), its payload as bytes.  NotSealed says what is wrong with it."""
        found = _HEAD.match(body or b"")
        if not found:
            raise NotSealed("it carries no token: it is not of mxcluster")
        sender, nonce, mac, kind = found.groups()
        payload = body[found.end():]
        if not hmac.compare_digest(_mac(self._token, sender, nonce, kind, payload).encode(), mac):
            raise NotSealed("its token is wrong (it calls itself %s): it is of another job, or of nobody's" % sender.decode())
        if nonce in self._seen:
            raise NotSealed("it was sent before, by %s: somebody has copied it" % sender.decode())
        self._seen.add(nonce)
        return Message(sender.decode(), kind.decode(), payload)


def proof(token, *parts):
    """What proves (str) that its maker has the token and means these parts (each a str or a number)."""
    return _mac(token, b"proof", *[str(part).encode("utf-8") for part in parts])


def proves(token, given, *parts):
    """Whether `given`, whatever came from the network, is the `proof` of these parts."""
    return type(given) is str and hmac.compare_digest(
        given.encode("utf-8", "replace"), proof(token, *parts).encode())


def _mac(token, *parts):
    digest = hmac.new(token, digestmod=hashlib.sha256)
    for part in parts:
        digest.update(b"%d:" % len(part) + part)  # or parts could be shifted into each other
    return digest.hexdigest()
