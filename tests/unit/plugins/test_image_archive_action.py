"""The action plugin mxcluster_image_archive: what the controller fetches of a node's image."""

import os
import subprocess
from unittest import mock

import pytest

from mxcluster.cluster import image_archive
from mxcluster.errors import BadInput
from plugins.action import mxcluster_image_archive as action


@pytest.fixture
def fetch(monkeypatch, tmp_path):
    """Return a function that fetches a file of `size` bytes and returns the result."""
    monkeypatch.setattr(action, "free_bytes", lambda folder: 4 << 20)
    there, into = tmp_path / "there.tar", tmp_path / "state" / "image.tar"

    def run(size, said="", problem=None):
        there.write_bytes(b"x" * size)
        given = {"src": str(there), "dest": str(into), "image": "i", "id": "7"}
        task = mock.Mock(async_val=0, check_mode=False, args=given)
        made = action.ActionModule(task, mock.Mock(), mock.Mock(), None, None, None)
        made._low_level_execute_command = lambda command: {
            "stdout": said or subprocess.check_output(["sh", "-c", command], text=True)
        }
        made._connection.fetch_file = lambda path, target: subprocess.call(["cp", path, target])
        refusal = mock.Mock(side_effect=problem and BadInput(problem))
        monkeypatch.setattr(image_archive, "check", refusal)
        result = made.run(task_vars={})
        if not result.get("failed"):
            refusal.assert_called_once_with(str(into), "i", "7")
        return result, os.path.getsize(str(into)) if into.exists() else 0

    return run


def test_a_checked_archive_is_fetched(fetch):
    result, size = fetch(1 << 20)
    assert result["changed"] and result["bytes"] == size == 1 << 20


def test_an_archive_of_more_than_half_of_the_free_space_is_refused(fetch):
    """Before, a node could fill the disk of the controller."""
    result, size = fetch(3 << 20)
    assert "has 3145728 bytes, and the controller has only 4194304" in result["msg"] and not size


def test_a_node_sends_no_more_than_it_has_said(fetch):
    result, size = fetch(3 << 20, said="1048576\n")
    assert size == 1 << 20, result


@pytest.mark.parametrize("said", ["", "-1", "many", "1\n2"])
def test_a_size_that_is_no_number_is_refused(fetch, said):
    result, size = fetch(10, said=said or "\n")
    assert "did not give the size" in result["msg"] and not size


def test_an_archive_that_the_check_refuses_fails_the_task(fetch):
    assert fetch(10, problem="another image")[0]["msg"] == "another image"
