"""The action plugin mxcluster_file, which copies a folder's files to a node.

test_9_training_user.py runs it in playbooks.
"""

from types import SimpleNamespace

from plugins.action import mxcluster_file


def test_a_node_cannot_request_another_file_of_the_controller(tmp_path):
    """The node's answer lists the missing files."""
    (tmp_path / "id_rsa").write_text("a key")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.rec").write_text("data")
    wanted = ["../id_rsa", str(tmp_path / "id_rsa"), ["train.rec"], "train.rec"]
    action, brought = object.__new__(mxcluster_file.ActionModule), []
    action._task = SimpleNamespace(check_mode=False)
    action._bring = brought.append
    action._ask = lambda arguments, _: (
        {"lacking": wanted} if "files" in arguments else {"changed": True}
    )
    assert action._folder({"src": str(tmp_path / "data"), "path": "/srv/data"}, {})["changed"]
    assert brought == [str(tmp_path / "data" / "train.rec")]
