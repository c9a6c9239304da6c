"""Bound the size of the files that the controller fetches from a node."""

import contextlib
import fcntl
import json
import os
import resource
from typing import Iterator

from ansible import constants as C


def free_bytes(folder: str) -> int:
    """Return the free space on the disk of `folder` for users other than root, in bytes."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let this process and its new children write files of at most `size` bytes.

    A node may send more than it has announced. The kernel then refuses a write (EFBIG), or ends the
    child of the connection (SIGXFSZ).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = [size] + [one for one in (soft, hard) if one != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def reserve(host: str, size: int, free: int) -> int:
    """Reserve space for `size` bytes of `host` and their copy; return the space that it may use.

    The forks of this run of Ansible fetch at the same time. Each fork alone would find the space of
    all. A host whose files do not fit reserves nothing.

    Args: `free` the free space of the disk now, in bytes. The value of the first fork counts for
    all, because later values lack the files that are here already.
    """
    path = os.path.join(C.DEFAULT_LOCAL_TMP, "space.json")
    with open(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), "r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        known = json.loads(stream.read() or json.dumps({"free": free, "sizes": {}}))
        known["sizes"].pop(host, None)
        left = min(free, known["free"] - 2 * sum(known["sizes"].values()))
        if 2 * size <= left:
            known["sizes"][host] = size
        stream.seek(0)
        stream.truncate()
        json.dump(known, stream)
        stream.flush()  # before the lock is released
    return int(left)
