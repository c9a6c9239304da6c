"""The controller's store of large files: each fetched once for the cluster, resumed where it was cut off, known by its sha256.

A file that somebody has put there himself is taken as it is, if its digest is right.
"""
import errno
import http.client
import os
import time
import urllib.error
import urllib.request
from typing import Any, Dict, Sequence

from .errors import MxclusterError
from .wheels import BLOCK, sha256

Json = Dict[str, Any]

TRIES, PAUSE = 4, 2.0  # of one file in one run, and the seconds between them
TIMEOUT = 30.0  # seconds without a byte
OURS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS)  # what the store's disk says, not the network
CUT = (OSError, http.client.HTTPException)  # what a network does to a connection; urllib's errors are OSErrors


def provide(store: str, file: Json) -> str:
    """The path of {"url", "name", "sha256" ("" if it is not known)} in the store; fetched if it is not there.

    MxclusterError, with what to put where, if it cannot be had, or is another than the one that is wanted.
    """
    path = os.path.join(store, file["name"])
    if not os.path.exists(path):
        os.makedirs(store, exist_ok=True)
        draft = path + ".part"
        fetch(file, draft, store)
        if file["sha256"] and sha256(draft) != file["sha256"]:
            found = sha256(draft)
            os.unlink(draft)
            raise MxclusterError("what %s gave as %s has the sha256 %s, not %s: nothing of it was kept. %s"
                                 % (file["url"], file["name"], found, file["sha256"], _instead(file, store)))
        os.replace(draft, path)
    elif file["sha256"] and sha256(path) != file["sha256"]:
        raise MxclusterError("%s has the sha256 %s, not %s: remove it, or put the right file there; if it is the right one, give "
                             "its digest in nvidia_sha256" % (path, sha256(path), file["sha256"]))
    return path


def fetch(file: Json, draft: str, store: str) -> None:
    """Bring the whole of a URL to `draft`, going on from what is there. MxclusterError after some tries without an end."""
    reason = None  # type: Optional[BaseException]
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE * attempt)
        try:
            if fetch_once(file["url"], draft):
                return
            reason = None
        except urllib.error.HTTPError as error:
            reason = error
            if error.code == 416:  # what is there is longer than the file: it is of another one
                os.unlink(draft)
            elif error.code < 500:
                break  # it will not be there the next time either
        except CUT as error:
            if getattr(error, "errno", None) in OURS:
                raise
            reason = error
    raise MxclusterError("%s could not be fetched from %s (%s). %s" % (
        file["name"], file["url"], getattr(reason, "reason", reason) or "it was cut off each time", _instead(file, store)))


def fetch_once(url: str, draft: str) -> bool:
    """Go on with `draft` as far as one connection goes. True if it is whole then."""
    begun = os.path.getsize(draft) if os.path.exists(draft) else 0
    request = urllib.request.Request(url, headers={"Range": "bytes=%d-" % begun} if begun else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if answer.status != 206:  # the server begins anew
            begun = 0
        length = answer.headers.get("Content-Length")
        with open(draft, "r+b" if begun else "wb") as target:
            target.seek(begun)
            for block in iter(lambda: answer.read(BLOCK), b""):
                target.write(block)
            end = target.tell()
    return length is None or end == begun + int(length)


def lacking(store: str, files: Sequence[Json]) -> Sequence[Json]:
    """Those of the files that are not there yet."""
    return [file for file in files if not os.path.exists(os.path.join(store, file["name"]))]


def _instead(file: Json, store: str) -> str:
    return "Or bring the file yourself: put %s%s into %s on the controller; or name a mirror of NVIDIA's files: nvidia_mirror" % (
        file["name"], " (sha256 %s)" % file["sha256"] if file["sha256"] else "", store)
