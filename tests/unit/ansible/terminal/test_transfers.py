"""The bytes of downloads and copies, of real files and processes."""

import os
import subprocess

import pytest

from mxcluster.ansible.terminal import transfers
from mxcluster.ansible.terminal.transfers import Bytes
from tests.waiting import until

MB = 1 << 20


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Keep the note of the test in a folder of its own."""
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(transfers.C, "DEFAULT_LOCAL_TMP", str(tmp_path / "run"))


def test_without_a_transfer_there_is_no_count():
    assert transfers.running() is None


def test_a_download_counts_what_has_come_since_its_start(tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    (store / "old.whl").write_bytes(b"x" * 100)
    with transfers.noted(str(store)):
        assert transfers.running() is None, "nothing has come"
        (store / ".fetch").mkdir()
        (store / ".fetch" / "new.whl").write_bytes(b"x" * 70)
        assert transfers.running() == Bytes(70, 0)
        (store / "new.whl").write_bytes(b"x" * 50)
        assert transfers.running() == Bytes(70, 0), "pip copies a file from its temporary folder"
    assert transfers.running() is None


def test_a_download_of_one_file_counts_its_earlier_part_and_knows_its_size(tmp_path):
    part = tmp_path / "cuda.run.part"
    with transfers.noted(str(tmp_path / "store")):
        transfers.note(str(part), 500)
        assert transfers.running() is None, "the file does not exist yet"
        part.write_bytes(b"x" * 300)
        assert transfers.running() == Bytes(300, 500)


@pytest.mark.parametrize("content", ["", "{", '{"path": 1}', '{"path": "/", "before": -1}'])
def test_a_damaged_note_is_no_transfer(tmp_path, content):
    (tmp_path / "run" / transfers.NOTE).write_text(content)
    assert transfers.running() is None


@pytest.mark.parametrize("program, counts", [("sftp", True), ("scp", True), ("tail", False)])
def test_a_program_that_copies_a_file_is_known_by_its_name(tmp_path, program, counts):
    """`cat` under another name: it stops in the middle, because nobody reads its pipe."""
    os.symlink("/bin/cat", str(tmp_path / program))
    for name in ("a.tar", "b.tar"):
        (tmp_path / name).write_bytes(b"x" * (3 * MB))
    copies = [
        subprocess.Popen([str(tmp_path / program), str(tmp_path / name)], stdout=subprocess.PIPE)
        for name in ("a.tar", "b.tar")
    ]
    try:
        for copy in copies:
            until(lambda copy=copy: copy.stdout.peek(1), 60)
        if counts:
            found = until(lambda: running_copies(2), 60)
            assert 0 < found.done < found.total == 6 * MB
        else:
            assert transfers.running() is None
    finally:
        for copy in copies:
            copy.kill()
            copy.communicate()
    assert transfers.running() is None


def running_copies(number):
    """Return the running transfer once all its copies have read a part, else None."""
    found = transfers.running()
    return found if found and found.copies == number and found.done >= 2 * 65536 else None
