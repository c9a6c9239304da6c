"""Shared memory of server processes, with real processes."""

import fcntl
import os
import signal
import time

import pytest

from mxcluster.errors import MxclusterError, PeerDied
from mxcluster.training.kvstore import shared_memory
from tests.waiting import until


@pytest.fixture
def path():
    found = shared_memory.path_of(os.urandom(16), 1)
    yield found
    if os.path.exists(found):
        os.unlink(found)


def forked(function):
    """Run the function in another process and return its pid."""
    child = os.fork()
    if child == 0:
        try:
            function()
        finally:
            os._exit(1)
    return child


def succeed(function):
    assert os.waitpid(forked(lambda: (function(), os._exit(0))), 0)[1] == 0


def test_a_process_reads_what_another_process_writes(path):
    mine = shared_memory.Memory(path, 2, 10)
    with mine.lock(3) as row:
        region = mine.place(row, shared_memory.WEIGHTS, 6000)
        region[5999:] = b"x"

    def other():
        theirs = shared_memory.Memory(path, 2, 10)
        with theirs.lock(3) as row:
            there = theirs.region(row, shared_memory.WEIGHTS)
            assert len(there) == 6000 and there[5999:] == b"x" and there[:1] == b"\0"
            there[:1] = b"y"
            assert theirs.region(row, shared_memory.STATES) is None
        with theirs.lock(4) as row:
            theirs.place(row, shared_memory.STATES, 1)[:] = b"z"
        assert theirs.raise_round(1, 7) == 7

    succeed(other)
    assert region[:1] == b"y" and mine.raise_round(1, 5) == 7
    assert (
        mine.raise_round(2, 1) == 1 and mine.raise_round(2, 3) == 3 and mine.raise_round(1, 8) == 8
    )  # each optimizer has its own states
    with mine.lock(4) as row:
        assert mine.region(row, shared_memory.STATES)[:] == b"z"


def test_regions_do_not_overlap_and_need_few_descriptors(path, monkeypatch):
    monkeypatch.setattr(shared_memory, "_CHUNK", 4 * 4096)
    mine, theirs = shared_memory.Memory(path, 3, 10), shared_memory.Memory(path, 3, 10)
    before, sizes = (
        len(os.listdir("/proc/self/fd")),
        [1, 4096, 5000, 4 * 4096, 50000, 3, 4097, 9000, 2, 7],
    )
    for number, size in enumerate(sizes):
        with mine.lock(number) as row:
            mine.place(row, shared_memory.WEIGHTS, size)[:] = bytes([number + 1]) * size
    for number, size in enumerate(sizes):
        with theirs.lock(number) as row:
            assert bytes(theirs.region(row, shared_memory.WEIGHTS)) == bytes([number + 1]) * size
    assert len(os.listdir("/proc/self/fd")) - before < 2 * len(sizes)
    monkeypatch.setattr(shared_memory, "_CHUNK", 1 << 26)
    other = shared_memory.Memory(path, 3, 10)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(10):
        with other.lock(number) as row:
            other.place(row, shared_memory.STATES, 4096)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_file_is_removed_once_all_processes_have_opened_it(path):
    shared_memory.Memory(path, 2, 10)
    assert os.path.exists(path)
    succeed(lambda: shared_memory.Memory(path, 2, 10))
    assert not os.path.exists(path)


def test_a_parameter_locked_by_a_dead_process_is_not_used(path, monkeypatch):
    monkeypatch.setattr(shared_memory, "_AGENT_SECONDS", 0.1)
    mine = shared_memory.Memory(path, 3, 10)

    def holder():
        with shared_memory.Memory(path, 3, 10).lock(5) as row:
            row[shared_memory.OPTIMIZER] = 1
            time.sleep(300)

    child = forked(holder)
    try:
        until(lambda: mine._head[8 + 6 * 5 + shared_memory.OPTIMIZER] == 1)
        with mine.lock(4):
            pass  # another parameter is free
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for _ in range(2):  # any process, and without an endless wait
        with pytest.raises(PeerDied, match="during an update of parameter 5"), mine.lock(5):
            pass
    with mine.lock(4):
        pass


def test_only_one_process_holds_the_lock_of_a_parameter(path, monkeypatch):
    """Without a wait, which a busy machine would make too short or too long."""
    mine = shared_memory.Memory(path, 3, 10)
    lockf = fcntl.lockf

    def other():
        theirs = shared_memory.Memory(path, 3, 10)
        monkeypatch.setattr(
            fcntl,
            "lockf",
            lambda file, command, *place: lockf(
                file, command if command == fcntl.LOCK_UN else command | fcntl.LOCK_NB, *place
            ),
        )
        with theirs.lock(4):
            pass  # another parameter is free
        with pytest.raises(BlockingIOError), theirs.lock(3):
            pass

    with mine.lock(3):
        succeed(other)


def test_updates_of_many_processes_are_serialized(path):
    mine = shared_memory.Memory(path, 4, 10)

    def count():
        theirs = shared_memory.Memory(path, 4, 10)
        for _ in range(2000):
            with theirs.lock(1) as row:
                row[shared_memory.OPTIMIZER] = row[shared_memory.OPTIMIZER] + 1
        os._exit(0)

    for child in [forked(count) for _ in range(3)]:
        assert os.waitpid(child, 0)[1] == 0
    with mine.lock(1) as row:
        assert row[shared_memory.OPTIMIZER] == 6000


def test_a_file_that_other_users_can_write_is_refused(path):
    with open(path, "w"):
        os.chmod(path, 0o666)
    with pytest.raises(MxclusterError, match="another user can open"):
        shared_memory.Memory(path, 2, 10)


def test_missing_memory_is_reported_before_its_use(path, monkeypatch):
    mine = shared_memory.Memory(path, 2, 10)
    with mine.lock(0) as row, pytest.raises(
        MxclusterError, match="/dev/shm has no room for .* MB more"
    ):
        mine.place(row, shared_memory.WEIGHTS, 1 << 50)
    with mine.lock(0) as row:  # a smaller region still fits
        assert len(mine.place(row, shared_memory.WEIGHTS, 10)) == 10
