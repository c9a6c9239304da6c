"""mxcluster_file under the Pythons of nodes: whole or not at all, and the truth in check mode."""
import base64
import os
import pwd
import stat
import sys

import pytest

from tests import ansible_modules
from tests.training.environments import find_python

PYTHONS = {"2.7": find_python("2.7"), "3.6": find_python("3.6"), "controller": sys.executable}


@pytest.fixture(params=sorted(PYTHONS))
def write(request, tmp_path):
    def run(text, path=tmp_path / "there" / "file", **options):
        return ansible_modules.run("mxcluster_file", tmp_path, under=PYTHONS[request.param], path=str(path),
                                   content=base64.b64encode(text.encode()).decode(), **options)
    return run


def test_twice(write, tmp_path):
    path = tmp_path / "there" / "file"
    assert write("a\n", check=True)["changed"] and not path.exists()
    assert write("a\n")["changed"] and path.read_text() == "a\n"
    assert not write("a\n")["changed"]
    changed = write("b\n", mode="0600")
    assert changed["changed"] and changed["diff"]["before"] == "a\n" and changed["diff"]["after"] == "b\n"
    assert path.read_text() == "b\n" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(str(path.parent)) == ["file"]


def test_a_disk_that_is_full(write):
    answer = write("x", path="/dev/full/file")
    assert answer["failed"] and "/dev/full/file cannot be written" in answer["msg"]


def test_a_user_that_is_not_there(write, tmp_path):
    answer = write("x", user="nobody-of-that-name")
    assert answer["failed"] and "run provision.yml" in answer["msg"] and not (tmp_path / "there").exists()
    assert write("x", user="nobody-of-that-name", check=True)["changed"]


def test_for_another_user(write, tmp_path):
    """Root writes as the user; anybody else is told whom it takes."""
    folder = tmp_path / "open"
    folder.mkdir()
    for above in [folder, *folder.parents][:4]:
        above.chmod(0o777)
    answer = write("x", path=folder / "file", user="nobody")
    if os.geteuid() == 0:
        assert pwd.getpwuid((folder / "file").stat().st_uid).pw_name == "nobody"
    else:
        assert answer["failed"] and "ansible_become" in answer["msg"]


def test_nobody_with_the_rights_of_root_is_the_training_user(tmp_path):
    answer = ansible_modules.run("mxcluster_file", tmp_path, path=str(tmp_path / "there"), content="", user="root")
    assert answer["rc"] == 1 and "root has uid 0" in answer["msg"] and not (tmp_path / "there").exists()
