"""The action plugin mxcluster_file, which copies files and folders to a node.

test_9_training_user.py runs it in playbooks.
"""

from types import SimpleNamespace
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from plugins.action import mxcluster_file
from tests import ansible_modules


def action_of(check_mode=False, **arguments):
    """Return the action plugin with the task's `arguments`, without a node."""
    task = mock.Mock(async_val=0, check_mode=check_mode, args=arguments)
    return mxcluster_file.ActionModule(task, mock.Mock(), mock.Mock(), None, None, None)


def test_a_node_cannot_request_another_file_of_the_controller(tmp_path):
    """The node's answer lists the missing files."""
    (tmp_path / "id_rsa").write_text("a key")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.rec").write_text("data")
    wanted = ["../id_rsa", str(tmp_path / "id_rsa"), "train.rec"]
    action, brought = object.__new__(mxcluster_file.ActionModule), []
    action._task = SimpleNamespace(check_mode=False)
    action._bring = brought.append
    action._ask = lambda given, _: {"lacking": wanted} if given.files else {"changed": True}
    given = mxcluster_file.Arguments(src=str(tmp_path / "data"), path="/srv/data")
    assert action._folder(given, {})["changed"]
    assert brought == [str(tmp_path / "data" / "train.rec")]


@pytest.mark.parametrize("source", ["file", "folder"])
def test_a_lost_connection_makes_the_node_unreachable(tmp_path, source):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("data")
    (tmp_path / "file").write_text("data")
    action = action_of(path="/srv/data", src=str(tmp_path / source))
    action._bring = mock.Mock(side_effect=AnsibleConnectionFailure("Broken pipe"))
    action._ask = lambda arguments, _: {"lacking": ["a"]}
    result = action.run(task_vars={})
    assert result["unreachable"] and not result.get("failed")
    assert "cannot copy %s to the node: Broken pipe" % (tmp_path / source) in result["msg"]
    action._bring = mock.Mock(side_effect=AnsibleError("No space left on device"))
    result = action.run(task_vars={})
    assert result["failed"] and not result.get("unreachable")


@pytest.mark.slow
def test_check_mode_compares_a_file_with_that_of_the_node(tmp_path):
    """No file goes to the node. The module compares the size, the digest and the permissions."""
    source, there = tmp_path / "model.params", tmp_path / "node" / "copy.params"
    source.write_text("weights")
    action = action_of(check_mode=True, path=str(there), src=str(source), mode="0600")
    action._bring = mock.Mock(side_effect=AssertionError)
    action._ask = lambda given, _: ansible_modules.run(
        "mxcluster_file", tmp_path, check=True, **given.encode()
    )

    def changed():
        result = action.run(task_vars={})
        assert not result.get("failed") and result["path"] == str(there), result
        return result["changed"]

    assert changed() and not there.parent.exists()
    there.parent.mkdir()
    assert changed()
    there.write_text("weights")
    there.chmod(0o644)
    assert changed()
    there.chmod(0o600)
    assert not changed()
    there.write_text("WEIGHTS")
    assert changed()
