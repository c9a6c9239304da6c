"""Read the files that the processes of a job write, which are hostile input."""

import errno
import os
import stat
from typing import List

from mxcluster.errors import BadInput

LOG_LINES, LOG_WIDTH = 20, 500
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
