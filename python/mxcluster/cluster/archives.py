"""Fetch large files once for the cluster, into a store on the controller.

The sha256 of each file is checked. An interrupted download resumes. A file that the user put into
the store is used if its digest is right.
"""

import errno
import http.client
import os
import time
import urllib.error
import urllib.request
from typing import Any, Callable, Dict, Optional, Sequence

from mxcluster.errors import MxclusterError
from mxcluster.file_io import BLOCK, sha256

Json = Dict[str, Any]

TRIES, PAUSE = 4, 2.0  # attempts for one file in one run; the pause grows by 2 s each time
TIMEOUT = 30.0  # seconds without a byte
OURS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EROFS,
)  # errors of the store's disk, not of the network
CUT = (
    OSError,
    http.client.HTTPException,
)  # errors of a connection; urllib's errors are OSErrors


def provide(store: str, file: Json, sha256_of: Callable[[str], str] = sha256) -> str:
    """Return the path of a file in the folder `store`. Fetch the file if it is missing.

    Args: `file` {"url", "name", "sha256" ("" if unknown)}; `sha256_of` a function that returns the
    SHA-256 of the file at a path, in hexadecimal. MxclusterError if the file cannot be fetched or
    has another digest.
    """
    path = os.path.join(store, file["name"])
    if not os.path.exists(path):
        os.makedirs(store, exist_ok=True)
        draft = path + ".part"
        fetch(file, draft, store)
        if file["sha256"] and sha256(draft) != file["sha256"]:
            found = sha256(draft)
            os.unlink(draft)
            raise MxclusterError(
                "%s delivered %s with the sha256 %s, not %s: the file was deleted. %s"
                % (file["url"], file["name"], found, file["sha256"], _instead(file, store))
            )
        os.replace(draft, path)
    elif file["sha256"] and sha256_of(path) != file["sha256"]:
        raise MxclusterError(
            "%s has the sha256 %s, not %s: remove it, or put the right file there; if the file is "
            "right, set its digest in nvidia_sha256" % (path, sha256_of(path), file["sha256"])
        )
    return path


def fetch(file: Json, draft: str, store: str) -> None:
    """Fetch `file` (see `provide`) to the path `draft`, and continue an earlier partial download.

    MxclusterError after TRIES failed attempts, or at once after an HTTP error that another attempt
    cannot cure. OSError if the file cannot be written to the store.

    Args: `store` the folder that the error message names.
    """
    reason: Optional[BaseException] = None
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE * attempt)
        try:
            if fetch_once(file["url"], draft):
                return
            reason = None
        except urllib.error.HTTPError as error:
            reason = error
            if error.code == 416:  # the draft is longer than the file: it is from another file
                os.unlink(draft)
            elif error.code < 500:
                break  # another attempt would fail, too
        except CUT as error:
            if getattr(error, "errno", None) in OURS:
                raise
            reason = error
    raise MxclusterError(
        "%s could not be fetched from %s (%s). %s"
        % (
            file["name"],
            file["url"],
            _cause(reason),
            _instead(file, store),
        )
    )


def fetch_once(url: str, draft: str) -> bool:
    """Continue the download of `url` to `draft` over one connection; return True if complete."""
    begun = os.path.getsize(draft) if os.path.exists(draft) else 0
    request = urllib.request.Request(url, headers={"Range": "bytes=%d-" % begun} if begun else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if answer.status != 206:  # the server sends the file from its beginning
            begun = 0
        length = answer.headers.get("Content-Length")
        with open(draft, "r+b" if begun else "wb") as target:
            target.seek(begun)
            for block in iter(lambda: answer.read(BLOCK), b""):
                target.write(block)
            end = target.tell()
    return length is None or end == begun + int(length)


def lacking(store: str, files: Sequence[Json]) -> Sequence[Json]:
    """Return those of `files` (see `provide`) that the folder `store` lacks."""
    return [file for file in files if not os.path.exists(os.path.join(store, file["name"]))]


def _cause(reason: Optional[BaseException]) -> str:
    """Return the cause of a failed download as text."""
    cause = getattr(reason, "reason", reason)
    return str(getattr(cause, "strerror", None) or cause or "the download was cut off")


def _instead(file: Json, store: str) -> str:
    return (
        "Run the playbook again; or fetch the file yourself, and put %s%s into %s on the "
        "controller; or set nvidia_mirror to a mirror of NVIDIA's files"
        % (file["name"], " (sha256 %s)" % file["sha256"] if file["sha256"] else "", store)
    )
