"""Fetch large files once for the cluster, into a store on the controller.

The module checks each known sha256, and resumes an interrupted download. It also accepts a file
that the user put into the store. `get_url` of Ansible resumes no download, and a controller need
not have curl.
"""

import errno
import http.client
import os
import time
import urllib.error
import urllib.request
from typing import Callable, Optional

from mxcluster.errors import FULL, MxclusterError
from mxcluster.file_io import BLOCK, sha256
from mxcluster.model.software import File

TRIES, PAUSE = 4, 2.0  # attempts for one file; seconds by which the pause grows each time
TIMEOUT = 30.0  # seconds without a received byte
DISK_ERRORS = FULL + (errno.EACCES, errno.EROFS)  # errors of the store's disk, not of the network
CUT = (OSError, http.client.HTTPException)  # errors of a connection; urllib's errors are OSErrors
# Gets the path of a download, and the bytes of the whole file, 0 if unknown.
Begin = Callable[[str, int], None]


def _no_count(path: str, total: int) -> None:
    pass


def provide(
    store: str, file: File, sha256_of: Callable[[str], str] = sha256, begin: Begin = _no_count
) -> str:
    """Return the path of `file` in the folder `store`. Fetch a missing file into the store.

    Args: `store` the path of the store (str); `sha256_of` a function that returns the SHA-256 of
    the file at a path, in hexadecimal; `begin` gets the path and the size of each download.

    Raises MxclusterError if the download fails or the sha256 differs.
    """
    path = os.path.join(store, file.name)
    if not os.path.exists(path):
        os.makedirs(store, exist_ok=True)
        draft = fetch(file, store, begin)
        if file.sha256 and sha256(draft) != file.sha256:
            found = sha256(draft)
            os.unlink(draft)
            raise MxclusterError(
                "%s sent %s with the sha256 %s instead of %s, so mxcluster deleted the file. %s"
                % (file.url, file.name, found, file.sha256, _instead(file, store))
            )
        os.replace(draft, path)
    elif file.sha256 and sha256_of(path) != file.sha256:
        raise MxclusterError(
            "%s has the sha256 %s instead of %s: replace or remove this file, or set its digest in "
            "nvidia_sha256 if the file is right" % (path, sha256_of(path), file.sha256)
        )
    return path


def fetch(file: File, store: str, begin: Begin = _no_count) -> str:
    """Fetch `file` into the folder `store`, or continue an earlier partial download.

    Returns the path of the download, which the caller checks and renames.

    Raises MxclusterError after TRIES failed attempts, or at once after an HTTP error such as 404
    that another attempt cannot cure. Raises OSError if the process cannot write to the store.
    """
    draft = os.path.join(store, file.name + ".part")
    reason: Optional[BaseException] = None
    for attempt in range(TRIES):
        time.sleep(PAUSE * attempt)
        try:
            if fetch_once(file.url, draft, begin):
                return draft
            reason = None
        except urllib.error.HTTPError as error:
            reason = error
            if error.code == 416:  # the draft is longer than the file, so the draft is wrong
                os.unlink(draft)
            elif error.code < 500:
                break  # another attempt would fail, too
        except CUT as error:
            if getattr(error, "errno", None) in DISK_ERRORS:
                raise
            reason = error
    raise MxclusterError(
        "the controller could not fetch %s from %s (%s). %s"
        % (file.name, file.url, _cause(reason), _instead(file, store))
    )


def fetch_once(url: str, draft: str, begin: Begin = _no_count) -> bool:
    """Continue the download of `url` to `draft` on one connection.

    Returns True if `draft` is complete. Raises an error of CUT if the connection fails.
    """
    begun = os.path.getsize(draft) if os.path.exists(draft) else 0
    request = urllib.request.Request(url, headers={"Range": "bytes=%d-" % begun} if begun else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if answer.status != 206:  # the server sends the file from its beginning
            begun = 0
        length = answer.headers.get("Content-Length")
        begin(draft, begun + int(length) if length else 0)
        with open(draft, "r+b" if begun else "wb") as target:
            target.seek(begun)
            for block in iter(lambda: answer.read(BLOCK), b""):
                target.write(block)
            end = target.tell()
    return length is None or end == begun + int(length)


def _cause(reason: Optional[BaseException]) -> str:
    """Return the cause of a failed download as a string."""
    cause = getattr(reason, "reason", reason)
    return str(getattr(cause, "strerror", None) or cause or "the download ended early")


def _instead(file: File, store: str) -> str:
    return (
        "Run the playbook again, set nvidia_mirror to a mirror of NVIDIA's files, or put %s%s into "
        "%s on the controller"
        % (file.name, " (sha256 %s)" % file.sha256 if file.sha256 else "", store)
    )
