"""Memory that the server processes of one host share: what `group.GroupUpdate` keeps of each parameter. Python alone.

It is a file in /dev/shm. The process that comes last removes its name, so that nothing is left however a job ends. Each part
of it has a lock, a byte of the file, which the kernel frees when its holder dies. Nobody goes on with what that one left.

Layout, in 8-byte integers unless said otherwise::

    head: how many processes have opened it, the end of what is in use, the newest round
    table: for each parameter of the layout the places (offset, length) of its weights and of its states, the number of
        the optimizer that the states are of, and whether somebody is at work on it
    regions, each beginning at a page, and in one map
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
WEIGHTS, STATES, OPTIMIZER, _BUSY = 0, 2, 4, 5  # where a row has the place of each, and the two single numbers
_CHUNK = 1 << 26  # bytes of a map: each takes a file descriptor
_TOLD = 3.0  # seconds in which the agent sees that a process has died


def path_of(token, host):
    """The file of a job's memory on the host with this number. Nobody can guess it who has not the job's token (bytes)."""
    return os.path.join(FOLDER, "mxcluster-" + hmac.new(token, b"memory of host %d" % host, hashlib.sha256).hexdigest()[:32])


class Memory(object):
    """The memory that `processes` processes share; each gives the same `path`, and room for `parameters` rows.

    MxclusterError if the file is another user's, or if there is no room.
    """

    def __init__(self, path, processes, parameters):
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        found = os.fstat(self._file)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise MxclusterError("%s is not this user's alone: remove it, and start the job anew" % path)
        self._maps = {}  # where one begins in the file -> it
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
        """Nobody else touches the parameter meanwhile. MxclusterError if its last holder died, or failed, in the middle."""
        with self._locked(1 + parameter):
            begin = _HEAD + _ROW * parameter
            row = self._head[begin:begin + _ROW]
            if row[_BUSY]:
                time.sleep(_TOLD)  # the job ends meanwhile, and that death is its cause
                raise MxclusterError("another server process of this host died while it updated parameter %d: what it left is "
                                     "not used" % parameter)
            row[_BUSY] = 1
            yield row
            row[_BUSY] = 0

    def place(self, row, kind, length):
        """A new region of so many bytes, all 0, for the parameter whose row is locked; its old one is no longer named."""
        with self._locked(0):
            begin = self._head[_END]
            if begin % _CHUNK + length > _CHUNK:  # a region is in one map
                begin = _rounded(begin, _CHUNK)
            self._head[_END] = begin + _rounded(length, _CHUNK if length > _CHUNK else mmap.PAGESIZE)
            self._reserve(begin, length)
        row[kind], row[kind + 1] = begin, length
        return self.region(row, kind)

    def region(self, row, kind):
        """The bytes of a region (a buffer that can be written); None if the parameter has none."""
        begin, length = row[kind], row[kind + 1]
        return self._mapped(begin, length) if length else None

    def raise_round(self, optimizer, number):
        """The newest round of all parameters under the optimizer with this number; it is at least `number` from now on."""
        mine = (optimizer << 32) + number
        if mine > self._head[_ROUND]:
            with self._locked(0):
                self._head[_ROUND] = max(mine, self._head[_ROUND])
        newest = self._head[_ROUND]
        return newest & 0xffffffff if newest >> 32 == optimizer else number

    def _mapped(self, begin, length):
        """A part of the file (a buffer). Maps are large, and none is ever closed: that would free this process's locks."""
        first = begin // _CHUNK * _CHUNK
        if first not in self._maps:
            end = first + max(_CHUNK, length)
            with self._locked(0):
                if os.fstat(self._file).st_size < end:
                    os.ftruncate(self._file, end)  # takes room as it is filled
            self._maps[first] = memoryview(mmap.mmap(self._file, end - first, offset=first))
        return self._maps[first][begin - first:begin - first + length]

    def _reserve(self, begin, length):
        try:  # a page that there is no room for would kill the process that first writes to it
            os.posix_fallocate(self._file, begin, length)
        except OSError as error:
            raise MxclusterError("%s has no room for %d MB more, in which the servers of a host keep the weights (%s): make room "
                                 "there, or enlarge it" % (FOLDER, (length >> 20) + 1, error.strerror)) from error

    @contextlib.contextmanager
    def _locked(self, byte):
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, byte)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)


def _rounded(length, unit):
    return -(-length // unit) * unit
