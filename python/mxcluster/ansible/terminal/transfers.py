"""Count the bytes of the downloads and copies of this run of ansible-playbook.

A task runs in a fork. The fork of a download notes the path that grows, in a file in the temporary
folder of this run. A copy over ssh is a program `sftp` or `scp`, and the kernel tells how far the
program has read its file. Without such figures there is no count.
"""

import contextlib
import glob
import json
import os
import stat
from typing import Dict, Iterator, List, NamedTuple, Optional

from ansible import constants as C

from mxcluster.file_io import read_intact, replace
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import text, whole

NOTE = "download.json"  # the file with the noted download
COPIERS = {"sftp", "scp"}  # the programs that copy a file to a node
SMALL = 1 << 20  # bytes of a file whose copy is not worth a count


class Bytes(NamedTuple):
    """The bytes of a running transfer."""

    done: int
    total: int
    """0 if unknown."""
    copies: int = 0
    """The number of copies to nodes, 0 for a download."""


class Download(Record):
    """A download of this run."""

    path: str = field(text)
    """The file, or the folder of the files."""
    before: int = field(whole())
    """The bytes that were there at the start."""
    total: int = field(whole())
    """The bytes of the whole file, 0 if unknown."""


def note(path: str, total: int = 0, before: int = 0) -> None:
    """Let the callback count the bytes of `path`.

    Args: `path` of a file or folder, which may not exist yet; `total` bytes of the whole file, 0 if
    unknown; `before` bytes that do not count.
    """
    download = Download(path=path, before=before, total=total)
    with contextlib.suppress(OSError):  # the download does not need the count
        replace(_note(), json.dumps(download.encode()), 0o600)


@contextlib.contextmanager
def noted(folder: str) -> Iterator[None]:
    """Let the callback count the bytes that come into `folder` while the block runs."""
    note(folder, before=size_of(folder))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.remove(_note())


def running() -> Optional[Bytes]:
    """Return the count of the transfers that this process and its forks do, None without any."""
    download = read_intact(_note(), record(Download))
    if download:
        done = size_of(download.path) - download.before
        return Bytes(done, download.total) if done > 0 else None
    copies = [found for pid in _descendants(str(os.getpid())) for found in _read_files(pid)]
    if not copies:
        return None
    return Bytes(sum(one.done for one in copies), sum(one.total for one in copies), len(copies))


def size_of(path: str) -> int:
    """Return the bytes of a file, or of all files below a folder.

    A file that pip is moving exists twice under one name, and counts once.
    """
    if os.path.isfile(path):
        return _size(path)
    sizes: Dict[str, int] = {}
    for folder, _, names in os.walk(path):
        for name in names:
            sizes[name] = max(sizes.get(name, 0), _size(os.path.join(folder, name)))
    return sum(sizes.values())


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:  # removed meanwhile
        return 0


def _note() -> str:
    return os.path.join(C.DEFAULT_LOCAL_TMP, NOTE)


def _descendants(pid: str) -> Iterator[str]:
    """Yield the pids of all processes below the process `pid`."""
    for path in glob.glob("/proc/%s/task/*/children" % pid):
        for child in _words(path):
            yield child
            yield from _descendants(child)


def _read_files(pid: str) -> Iterator[Bytes]:
    """Yield how far the process `pid` has read each of its large files, if it copies files."""
    if not COPIERS.intersection(_words("/proc/%s/comm" % pid)):
        return
    for path in glob.glob("/proc/%s/fd/*" % pid):
        with contextlib.suppress(OSError, ValueError, IndexError):  # the program has closed it
            found = os.stat(path)
            if stat.S_ISREG(found.st_mode) and found.st_size >= SMALL:
                position = int(_words(path.replace("/fd/", "/fdinfo/"))[1])  # pos: NUMBER
                yield Bytes(min(position, found.st_size), found.st_size)


def _words(path: str) -> List[str]:
    try:
        with open(path) as stream:
            return stream.read().split()
    except OSError:  # the process has ended
        return []
