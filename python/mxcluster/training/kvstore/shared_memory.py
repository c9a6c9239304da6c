"""Share memory between the server processes of one host, without C code.

`gsync_server.GroupUpdate` keeps the data of each parameter in this memory, a file in /dev/shm. The
last process that opens the file removes the file's name. If a process dies before this removal, the
agent removes the file at the job's end.

The head and each parameter have a lock on one byte of the file. If a process dies, the
kernel frees the lock. A flag in the parameter's row then keeps other processes from using the
parameter.

Layout, in 8-byte integers unless said otherwise::

    head: the count of processes that have opened the file, the end of the space in use, the
        newest round
    table: for each parameter of the layout a row with (offset, length) of the weights and of the
        states, the version of the optimizer that made the states, and a flag for an update under
        way. The job's first optimizer has version 1.
    regions: each region begins at a page, and lies in one map of _CHUNK bytes
"""

import contextlib
import fcntl
import hashlib
import hmac
import mmap
import os
import stat
import time
from typing import Dict, Iterator, Optional

from mxcluster.errors import MxclusterError, PeerDied

FOLDER = "/dev/shm"
_OPENED, _END, _ROUND, _HEAD = 0, 1, 2, 8
_ROW = 6  # numbers of a row of the table
# Places in a row: (offset, length) of the weights and of the states, then the two single numbers.
WEIGHTS, STATES, OPTIMIZER, _BUSY = 0, 2, 4, 5
_CHUNK = 1 << 26  # bytes of a map; each map needs a file descriptor
_AGENT_SECONDS = 3.0  # seconds until the agent has detected the death of a process


def path_of(token: bytes, host: int) -> str:
    """Return the path of the job's shared memory on the host with the number `host`.

    Only a program that has the job's `token` can compute the path.
    """
    return os.path.join(
        FOLDER,
        "mxcluster-"
        + hmac.new(token, b"memory of host %d" % host, hashlib.sha256).hexdigest()[:32],
    )


class Memory(object):
    """The shared memory of one host, a file with a row for each parameter.

    Args:
        path: the file's path.
        processes: the number of processes that share the memory.
        parameters: the number of rows.

    Raises MxclusterError if another user can open the file, or if /dev/shm has no room.
    """

    def __init__(self, path: str, processes: int, parameters: int) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        status = os.fstat(self._file)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise MxclusterError(
                "another user can open %s: remove this file, and start the job again" % path
            )
        self._maps: Dict[int, memoryview] = {}  # {offset in the file: its map}
        length = 8 * (_HEAD + _ROW * parameters)
        self._reserve(0, length)
        self._head = self._mapped(0, length).cast("q")
        with self._locked(0):
            self._head[_END] = max(self._head[_END], _rounded(length, mmap.PAGESIZE))
            self._head[_OPENED] += 1
            if self._head[_OPENED] == processes:
                os.unlink(path)

    @contextlib.contextmanager
    def lock(self, parameter: int) -> Iterator[memoryview]:
        """Lock the parameter with the number `parameter`, and yield its row of the table.

        Raises PeerDied if an earlier holder of the lock died or failed during an update.
        """
        with self._locked(1 + parameter):
            begin = _HEAD + _ROW * parameter
            row = self._head[begin : begin + _ROW]
            if row[_BUSY]:
                # Meanwhile the agent ends the job and reports that death.
                time.sleep(_AGENT_SECONDS)
                raise PeerDied(
                    "another server process of this host died during an update of parameter %d, so "
                    "the weights of this parameter may be incomplete: start the job again"
                    % parameter
                )
            row[_BUSY] = 1
            yield row
            row[_BUSY] = 0

    def place(self, row: memoryview, kind: int, length: int) -> memoryview:
        """Reserve a region of `length` bytes, all 0, and return the region as a writable buffer.

        In the row, the new region replaces an earlier region of the same kind.

        Args: `row` the locked row of a parameter; `kind` WEIGHTS or STATES.
        """
        with self._locked(0):
            begin = self._head[_END]
            if begin % _CHUNK + length > _CHUNK:  # a region is in one map
                begin = _rounded(begin, _CHUNK)
            self._head[_END] = begin + _rounded(
                length, _CHUNK if length > _CHUNK else mmap.PAGESIZE
            )
            self._reserve(begin, length)
        row[kind], row[kind + 1] = begin, length
        return self._mapped(begin, length)

    def region(self, row: memoryview, kind: int) -> Optional[memoryview]:
        """Return a parameter's region as a writable buffer, or None if the row has no such region.

        Args:
            row: the row of the parameter.
            kind: WEIGHTS or STATES.
        """
        begin, length = row[kind], row[kind + 1]
        return self._mapped(begin, length) if length else None

    def raise_round(self, optimizer: int, number: int) -> int:
        """Raise the newest round to at least `number`, and return the newest round.

        All parameters of a host share the newest round. The rounds of a new optimizer begin again.
        If the memory already has the round of a newer optimizer, the result is `number`.

        Args:
            optimizer: the version of the optimizer, 1 for the job's first optimizer.
            number: the round of one parameter.
        """
        version_and_round = (optimizer << 32) + number
        if version_and_round > self._head[_ROUND]:
            with self._locked(0):
                self._head[_ROUND] = max(version_and_round, self._head[_ROUND])
        newest = self._head[_ROUND]
        return newest & 0xFFFFFFFF if newest >> 32 == optimizer else number

    def _mapped(self, begin: int, length: int) -> memoryview:
        """Return `length` bytes of the file from offset `begin` on as a writable buffer.

        A map has at least _CHUNK bytes. The process keeps all maps open, because closing a map
        would free the process's locks.
        """
        first = begin // _CHUNK * _CHUNK
        if first not in self._maps:
            end = first + max(_CHUNK, length)
            with self._locked(0):
                if os.fstat(self._file).st_size < end:
                    os.ftruncate(self._file, end)  # takes memory only as pages are written
            self._maps[first] = memoryview(mmap.mmap(self._file, end - first, offset=first))
        return self._maps[first][begin - first : begin - first + length]

    def _reserve(self, begin: int, length: int) -> None:
        try:  # Without room for a page, a write to the page would kill the process.
            os.posix_fallocate(self._file, begin, length)
        except OSError as error:
            raise MxclusterError(
                "%s has no room for %d MB more of the servers' weights (%s): remove files from "
                "this folder, or enlarge its file system"
                % (FOLDER, (length >> 20) + 1, error.strerror)
            ) from error

    @contextlib.contextmanager
    def _locked(self, byte: int) -> Iterator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, byte)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)


def _rounded(length: int, unit: int) -> int:
    return -(-length // unit) * unit
