"""mxcluster_file under the Pythons of nodes: atomic writes and an exact check mode."""

import base64
import hashlib
import importlib
import os
import pwd
import stat

import pytest

from tests import ansible_modules, needs
from tests.pythons import python_of

PYTHONS = ["2.7", "3.6", "controller"]


@pytest.fixture(params=PYTHONS)
def act(request, tmp_path):
    """Return a function that runs the module."""

    def run(path, **options):
        under = python_of(request.param)
        return ansible_modules.run(
            "mxcluster_file", tmp_path, under=under, path=str(path), **options
        )

    return run


@pytest.fixture
def write(act, tmp_path):
    def run(text, path=tmp_path / "there" / "file", **options):
        return act(path, content=base64.b64encode(text.encode()).decode(), **options)

    return run


@pytest.mark.slow
def test_a_file_is_written_once(write, tmp_path):
    path = tmp_path / "there" / "file"
    assert write("a\n", check=True)["changed"] and not path.exists()
    assert write("a\n")["changed"] and path.read_text() == "a\n"
    assert not write("a\n")["changed"]
    changed = write("b\n", mode="0600")
    assert changed["changed"]
    assert (changed["diff"]["before"], changed["diff"]["after"]) == ("a\n", "b\n")
    assert path.read_text() == "b\n" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(str(path.parent)) == ["file"]


@pytest.mark.slow
def test_a_full_disk_is_an_error(write):
    answer = write("x", path="/dev/full/file")
    assert answer["failed"] and "cannot write /dev/full/file: " in answer["msg"]


@pytest.mark.slow
def test_a_missing_user_is_an_error_except_in_check_mode(write, tmp_path):
    answer = write("x", user="nobody-of-that-name")
    assert answer["failed"] and "run provision.yml" in answer["msg"]
    assert not (tmp_path / "there").exists()
    assert write("x", user="nobody-of-that-name", check=True)["changed"]


def test_a_file_of_another_user_needs_root(write, tmp_path):
    """Root writes as that user; for other users, the message names ansible_become."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    answer = write("x", path=folder / "file", user="nobody")
    if os.geteuid() == 0:
        assert pwd.getpwuid((folder / "file").stat().st_uid).pw_name == "nobody"
    else:
        assert answer["failed"] and "ansible_become" in answer["msg"]


def test_a_training_user_with_uid_0_is_refused(tmp_path):
    answer = ansible_modules.run(
        "mxcluster_file", tmp_path, path=str(tmp_path / "there"), content="", user="root"
    )
    assert answer["rc"] == 1 and "root has uid 0" in answer["msg"]
    assert not (tmp_path / "there").exists()


@pytest.fixture
def copy(act, tmp_path):
    (tmp_path / "brought").write_bytes(b"x" * 3000000)
    (tmp_path / "brought").chmod(0o600)
    return lambda path, **options: act(path, src=str(tmp_path / "brought"), **options)


@pytest.mark.slow
def test_a_copied_file_is_written_once(copy, tmp_path):
    path = tmp_path / "there" / "file"
    assert copy(path, check=True)["changed"] and not path.exists()
    assert copy(path)["changed"] and path.read_bytes() == (tmp_path / "brought").read_bytes()
    assert not copy(path)["changed"] and stat.S_IMODE(path.stat().st_mode) == 0o644
    path.write_bytes(b"x" * 2999999 + b"y")
    assert copy(path)["changed"] and not copy(path)["changed"]
    assert os.listdir(str(path.parent)) == ["file"]
    (tmp_path / "brought").unlink()
    assert "cannot read %s, the" % (tmp_path / "brought") in copy(path)["msg"]


@pytest.mark.slow
@needs.root
def test_root_does_not_write_through_a_users_link(copy, tmp_path):
    """Root writes with the rights of `user`, so a user's link cannot redirect the write."""
    theirs, roots = tmp_path / "theirs", tmp_path / "roots"
    theirs.mkdir()
    roots.mkdir(mode=0o755)
    os.chown(str(theirs), pwd.getpwnam("nobody").pw_uid, -1)
    (roots / "file").write_text("root's")
    (theirs / "link").symlink_to(roots / "file")
    (theirs / "resume").symlink_to(roots)
    assert copy(theirs / "link", user="nobody")["changed"]
    assert not (theirs / "link").is_symlink() and (theirs / "link").owner() == "nobody"
    assert "Permission denied" in copy(theirs / "resume" / "file", user="nobody")["msg"]
    assert (roots / "file").read_text() == "root's" and os.listdir(str(roots)) == ["file"]


@pytest.mark.slow
@needs.root
def test_a_folder_is_created_inspected_and_removed(act, tmp_path):
    """Root creates the folders above, and they stay root's."""
    folder = tmp_path / "above" / "data"
    file = {"bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    asked = dict(state="directory", user="nobody", files={"a": file, "b/c": file})
    told = act(folder, check=True, **asked)
    assert told["changed"] and told["lacking"] == ["a", "b/c"] and not folder.parent.exists()
    assert act(folder, **asked)["changed"]
    assert folder.owner() == "nobody" and folder.parent.owner() == "root"
    (folder / "a").write_text("x")
    told = act(folder, **asked)
    assert not told["changed"] and told["lacking"] == ["b/c"]
    assert act(folder, state="directory", user="nobody", mode="0700")["changed"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    refused = act(folder, state="directory", user="daemon", mode="0755")
    assert refused["failed"] and "must belong to daemon" in refused["msg"]
    assert "cannot remove %s: " % folder in act(folder, state="absent", user="nobody")["msg"], (
        "the folder above is root's"
    )
    assert not (folder / "a").exists() and act(folder, state="absent")["changed"]
    assert not act(folder, state="absent")["changed"]
    for one, other in (("one", "other"), ("other", "one")):
        (tmp_path / one).symlink_to(tmp_path / other)
    refused = act(tmp_path / "one" / "x", state="directory", roots=[str(tmp_path / "one")])
    assert "non-root users can change" in refused["msg"]


def test_a_file_is_synced_before_it_is_renamed(tmp_path, monkeypatch):
    """A power cut leaves no empty file under the final name."""
    done, fsync, rename = [], os.fsync, os.rename
    monkeypatch.setattr(
        os,
        "fsync",
        lambda number: (done.append(os.readlink("/proc/self/fd/%d" % number)), fsync(number)),
    )
    monkeypatch.setattr(os, "rename", lambda old, new: (done.append((old, new)), rename(old, new)))
    path = str(tmp_path / "groups")
    importlib.import_module("ansible.module_utils.mxcluster_atomic_files").write(
        path, b"text", 0o644
    )
    assert len(done) == 2 and done[1] == (done[0], path)
