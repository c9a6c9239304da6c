"""Bound the size of the files that the controller fetches from a node."""

import contextlib
import os
import resource
from typing import Iterator


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
