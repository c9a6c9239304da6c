"""Read the files that the processes of a job write, which are hostile input."""

import errno
import os
import stat
from typing import List, Tuple

from mxcluster.errors import BadInput

LOG_LINES, LOG_WIDTH = 20, 500
MOST_NEW = 256 * 1024  # bytes of a growing log in one answer
NO_FILE = (
    "%s is not a regular file, so mxcluster cannot fetch the job's files: remove that path on this "
    "node, and fetch the files with train.yml -e attach=<job>"
)


def open_regular(path: str) -> int:
    """Return a descriptor of the regular file `path`, to read it.

    Raises BadInput if `path` is a link, a socket or another special file.
    """
    try:  # follow no link, and do not block on a FIFO
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise
        raise BadInput(NO_FILE % path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput(NO_FILE % path)
    return descriptor


def last_frame(line: str) -> str:
    """Return the last frame of `line` that is not blank. A carriage return begins a frame.

    A progress bar draws many frames on one line, and the last one stays on a terminal.
    """
    return next((frame for frame in reversed(line.split("\r")) if frame.strip()), "")


def readable(data: bytes, number: int = LOG_LINES) -> List[str]:
    """Return the last `number` lines of `data`, the bytes of a log, as printable strings.

    The function drops unprintable characters and empty lines, and cuts lines at LOG_WIDTH
    characters. Of the frames of a progress bar only the last one stays (see `last_frame`).
    """
    text = data.decode("utf-8", errors="replace").replace("\ufffd", "")
    lines = (
        "".join(sign for sign in line if sign.isprintable() or sign == "\t").rstrip()
        for shown in map(last_frame, text.split("\n"))
        for line in shown.splitlines()
    )
    return [
        line if len(line) <= LOG_WIDTH else line[: LOG_WIDTH - 3] + "..." for line in lines if line
    ][-number:]


def new_lines(path: str, offset: int, is_final: bool) -> Tuple[List[str], int]:
    """Return the lines of the log `path` since `offset`, and the offset for the next call.

    A line without its line break stays for the next call, unless `is_final` is True. Of more than
    MOST_NEW bytes the function returns the end, and a line with the number of skipped bytes. A log
    that has become shorter begins anew. A missing log, and a path that is no regular file, have no
    lines.

    Args: `offset` in bytes.
    """
    try:
        descriptor = open_regular(path)
    except (BadInput, FileNotFoundError):
        return [], 0
    with open(descriptor, "rb") as stream:
        size = os.fstat(descriptor).st_size
        begin = offset if offset <= size else 0
        skipped = max(0, size - begin - MOST_NEW)
        stream.seek(begin + skipped)
        data = stream.read(MOST_NEW)
    if not is_final and len(data) < MOST_NEW:
        data = data[: data.rfind(b"\n") + 1]
    lines = readable(data, MOST_NEW)
    if skipped:
        lines.insert(0, "(%d bytes of this log are not shown here)" % skipped)
    return lines, begin + skipped + len(data)


def piece(path: str, size: int, tail: bool = True) -> bytes:
    """Return the last `size` bytes of the file `path`, or the first `size` bytes if not `tail`.

    Returns b"" if the file is missing.
    """
    try:
        with open(path, "rb") as stream:
            if tail:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - size))
            return stream.read(size)
    except FileNotFoundError:
        return b""
