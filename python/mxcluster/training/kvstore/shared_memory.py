"""Share memory between the server processes of one host, in Python alone.

`gsync_server.GroupUpdate` keeps its data of each parameter in this memory, a file in /dev/shm. The
last process to open the file removes its name. If a process dies before that, the agent removes the
file at the job's end. The head and each parameter have a lock, a byte of the file. The kernel frees
a lock when its holder dies, and then no process uses the parameter again.

Layout, in 8-byte integers unless said otherwise::

    head: the number of processes that have opened the file, the end of the space in use, the
        newest round
    table: for each parameter of the layout the places (offset, length) of its weights and of
        its states, the number of the states' optimizer, and a flag for an update under way
    regions: each begins at a page and lies in one map of _CHUNK bytes
"""

import contextlib
import fcntl
import hashlib
import hmac
import mmap
import os
import stat
import time

from mxcluster.errors import MxclusterError

FOLDER = "/dev/shm"
_OPENED, _END, _ROUND, _HEAD = 0, 1, 2, 8
_ROW = 6  # numbers of a row of the table
# Places in a row: (offset, length) of the weights and of the states, then the two single numbers.
WEIGHTS, STATES, OPTIMIZER, _BUSY = 0, 2, 4, 5
_CHUNK = 1 << 26  # bytes of a map; each map needs a file descriptor
_TOLD = 3.0  # seconds until the agent has detected the death of a process


def path_of(token, host):
    """Return the path of a job's shared memory on the host number `host`.

    No program can guess the path without `token`, the job's token (bytes).
    """
    return os.path.join(
        FOLDER,
        "mxcluster-"
        + hmac.new(token, b"memory of host %d" % host, hashlib.sha256).hexdigest()[:32],
    )


class Memory(object):
    """The memory that `processes` processes share at `path`, with room for `parameters` rows.

    Raises MxclusterError if another user can open the file, or if there is no room.
    """

    def __init__(self, path, processes, parameters):
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        found = os.fstat(self._file)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise MxclusterError(
                "%s can be opened by another user: remove it, and start the job again" % path
            )
        self._maps = {}  # {offset in the file: its map}
        length = 8 * (_HEAD + _ROW * parameters)
        self._reserve(0, length)
        self._head = self._mapped(0, length).cast("q")
        with self._locked(0):
            self._head[_END] = max(self._head[_END], _rounded(length, mmap.PAGESIZE))
            self._head[_OPENED] += 1
            if self._head[_OPENED] == processes:
                os.unlink(path)

    @contextlib.contextmanager
    def lock(self, parameter):
        """Lock `parameter` (its number) and yield its row of the table.

        Raises MxclusterError if the last holder died or failed during its update.
        """
        with self._locked(1 + parameter):
            begin = _HEAD + _ROW * parameter
            row = self._head[begin : begin + _ROW]
            if row[_BUSY]:
                time.sleep(_TOLD)  # Meanwhile the agent ends the job and reports that death.
                raise MxclusterError(
                    "another server process of this host died while it updated parameter %d, whose "
                    "weights may be incomplete now: start the job again" % parameter
                )
            row[_BUSY] = 1
            yield row
            row[_BUSY] = 0

    def place(self, row, kind, length):
        """Return a new region of `length` bytes, all 0, as a writable buffer.

        Args: `row` the locked row of a parameter; `kind` WEIGHTS or STATES. The new region replaces
        an earlier one of this kind in the row.
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
        return self.region(row, kind)

    def region(self, row, kind):
        """Return a region as a writable buffer, or None if the parameter has none.

        Args: `row` the row of a parameter; `kind` WEIGHTS or STATES.
        """
        begin, length = row[kind], row[kind + 1]
        return self._mapped(begin, length) if length else None

    def raise_round(self, optimizer, number):
        """Raise the newest round to at least `number`, and return the newest round.

        All parameters share this round. Args: `optimizer` the optimizer's number in the job; a new
        optimizer begins its rounds again.
        """
        mine = (optimizer << 32) + number
        if mine > self._head[_ROUND]:
            with self._locked(0):
                self._head[_ROUND] = max(mine, self._head[_ROUND])
        newest = self._head[_ROUND]
        return newest & 0xFFFFFFFF if newest >> 32 == optimizer else number

    def _mapped(self, begin, length):
        """Return `length` bytes of the file from `begin` on as a writable buffer.

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

    def _reserve(self, begin, length):
        try:  # Without room for a page the first write to it would kill the process.
            os.posix_fallocate(self._file, begin, length)
        except OSError as error:
            raise MxclusterError(
                "%s has no room for %d MB more, but the servers of a host keep their weights there "
                "(%s): remove files there, or enlarge the file system"
                % (FOLDER, (length >> 20) + 1, error.strerror)
            ) from error

    @contextlib.contextmanager
    def _locked(self, byte):
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, byte)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)


def _rounded(length, unit):
    return -(-length // unit) * unit
