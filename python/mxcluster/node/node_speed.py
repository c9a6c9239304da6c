"""Measure the speed of this node alone: products of matrices, and the disk of the job folders."""

import os
import sys
import tempfile
import time
from typing import Mapping

from mxcluster import calls, exit_codes
from mxcluster.model.check_answer import DiskSpeed

MARK = "GFLOPS "
MATMUL_SECONDS, MATMUL_LIMIT = 1.0, 60.0
# numpy runs in a child process, because its library reads the number of threads when it loads.
# The mean over a second also shows a core that is throttled for parts of the second.
MATMUL = (
    """
import os, sys, time
from mxcluster.node import cores
cores.bind(os.environ)
import numpy
size, count = 1024, 0
matrix = numpy.ones((size, size), numpy.float32)
numpy.dot(matrix, matrix)
began = time.monotonic()
while time.monotonic() - began < %%g:
    numpy.dot(matrix, matrix)
    count += 1
seconds = time.monotonic() - began
sys.stdout.write("%s%%%%f" %%%% (2e-9 * size ** 3 * count / seconds))
"""
    % MARK
)
PIECE, PIECES = 1 << 20, 16  # bytes of a write, and writes before an fsync
MOST_BYTES, DISK_SECONDS = 64 << 20, 5.0  # the first of them ends the writing


def matmul(variables: Mapping[str, str]) -> float:
    """Return the speed of numpy's products of matrices of float32 in GFLOP/s.

    Raises OSError if numpy fails. Args: `variables` of a worker, with its CPUs and threads.
    """
    program = [sys.executable, "-c", MATMUL % MATMUL_SECONDS]
    ended = calls.run(program, MATMUL_LIMIT, dict(os.environ, **variables))
    if ended.status or not ended.out.startswith(MARK):
        why = exit_codes.describe(ended.status)
        raise OSError("the product of matrices failed (%s): %s" % (why, ended.last_line))
    return float(ended.out[len(MARK) :])


def disk(folder: str) -> DiskSpeed:
    """Return the speed of the file system of `folder`, with fsync, in MB/s.

    The file has no name, so that nothing stays. A folder that does not exist yet stands for the
    folder above it. Raises OSError if the disk is full or the folder is read-only.
    """
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    written, piece = 0, os.urandom(PIECE)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as stream:
        began = time.monotonic()
        while written < MOST_BYTES and time.monotonic() - began < DISK_SECONDS:
            for _ in range(PIECES):
                written += stream.write(piece)
            os.fsync(stream.fileno())
        writing = time.monotonic() - began
        # Otherwise the kernel would answer the reads from memory.
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        stream.seek(0)
        began = time.monotonic()
        while stream.read(PIECE):
            pass
        reading = time.monotonic() - began
    return DiskSpeed(write=written / writing / 1e6, read=written / reading / 1e6)
