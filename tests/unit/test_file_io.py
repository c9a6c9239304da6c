"""Check folders of the controller before a job."""

import os
import shutil
import tempfile
from collections import namedtuple

import pytest

from mxcluster import file_io
from mxcluster.errors import BadInput

NOBODY = 65534


def test_a_folder_that_can_be_made_is_accepted_and_left_as_it_is(tmp_path):
    file_io.check_folder("runs_dir", str(tmp_path / "new" / "runs"))
    assert list(tmp_path.iterdir()) == []
    file_io.check_folder("runs_dir", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["/proc/x", "/sys/x/y", "{0}/file", "{0}/file/runs", "{0}/link", "{0}/link/runs"]
)
def test_a_folder_that_cannot_be_written_is_refused(tmp_path, path):
    """Also by root, whose rights are no sign."""
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    path = path.format(tmp_path)
    with pytest.raises(BadInput, match="runs_dir=%s: the controller cannot write to /" % path):
        file_io.check_folder("runs_dir", path)


@pytest.fixture
def closed():
    """Return a folder without the right to write. The test runs without the rights of root."""
    me = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o555)
        try:
            if me == 0:
                os.seteuid(NOBODY)
            yield os.path.join(name, "runs")
        finally:
            os.seteuid(me)


def test_a_folder_without_rights_is_refused(closed):
    with pytest.raises(BadInput, match="Permission denied"):
        file_io.check_folder("runs_dir", closed)


def test_a_full_disk_is_refused(tmp_path, monkeypatch):
    Usage = namedtuple("Usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(file_io.LEAST_FREE - 1))
    with pytest.raises(BadInput, match="runs_dir=.* has only 99 MB left, .*at least 100 MB"):
        file_io.check_folder("runs_dir", str(tmp_path))
