"""The blocks of mxcluster_ssh under the Pythons of nodes.

The module keeps foreign lines, and root follows no link.
"""

import os
import pwd
import stat
import subprocess
import sys

import pytest

from tests import ansible_modules, needs
from tests.pythons import python_of

PYTHONS = ["2.7", "controller"]
MARKER = "# {mark} of ours"
BLOCK = "# BEGIN of ours\n%s\n# END of ours\n"


@pytest.fixture(params=PYTHONS)
def rebuild(request, tmp_path):
    """Return a function that runs the module for a user with the home tmp_path/home."""
    (tmp_path / "home").mkdir()
    lie = (
        "import pwd; one, real = pwd.getpwuid, pwd.getpwnam; there = lambda entry: "
        "type(entry)(entry[:5] + (%r,) + entry[6:]); pwd.getpwuid = lambda uid: there(one(uid)); "
        "pwd.getpwnam = lambda name: there(real(name)); " % str(tmp_path / "home")
    )

    def run(block, path=".ssh/config", check=False, user="", **options):
        return ansible_modules.run(
            "mxcluster_ssh",
            tmp_path,
            under=python_of(request.param),
            before=lie,
            check=check,
            user=user,
            blocks=[dict(path=path, block=block, marker=MARKER, **options)],
            _ansible_diff=True,
        )

    return run


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.slow
def test_a_block_is_written_once(rebuild, tmp_path):
    path = tmp_path / "home" / ".ssh" / "config"
    bare = rebuild("a\nb", check=True)
    assert bare["changed"] and bare["diff"][0]["after"] == BLOCK % "a\nb"
    assert not path.parent.exists()
    assert rebuild("a\nb")["changed"] and path.read_text() == BLOCK % "a\nb"
    assert mode(path) == 0o600 and mode(path.parent) == 0o700
    assert os.listdir(str(path.parent)) == ["config"]
    again = rebuild("a\nb")
    assert not again["changed"] and again["diff"] == []
    path.parent.chmod(0o755)
    assert rebuild("a\nb", check=True)["changed"] and mode(path.parent) == 0o755
    assert rebuild("a\nb")["changed"] and mode(path.parent) == 0o700


@pytest.mark.slow
@pytest.mark.parametrize(
    "before, place, after",
    [
        ("mine", "EOF", "mine\n" + BLOCK % "new"),
        ("one\n" + BLOCK % "old" + "two", "EOF", "one\n" + BLOCK % "new" + "two"),
        ("one\r\n" + BLOCK % "old\nolder" + "two\n", "BOF", "one\r\n" + BLOCK % "new" + "two\n"),
        (BLOCK % "old" + "mine\n" + BLOCK % "copied", "EOF", BLOCK % "new" + "mine\n"),
        (
            "# BEGIN of ours\nthe end was lost\n",
            "EOF",
            "# BEGIN of ours\nthe end was lost\n" + BLOCK % "new",
        ),
    ],
)
def test_foreign_lines_stay(rebuild, tmp_path, before, place, after):
    path = tmp_path / "home" / "file"
    path.write_bytes(before.encode())
    path.chmod(0o640)
    told = rebuild("new", path="file", place=place, mode="0604", check=True)
    assert told["changed"] and path.read_bytes().decode() == before
    assert rebuild("new", path="file", place=place, mode="0604")["changed"]
    assert (
        path.read_bytes().decode() == after and mode(path) == 0o600
    )  # no more than the old mode and the given mode allow
    assert not rebuild("new", path="file", place=place, mode="0604")["changed"]


@pytest.mark.slow
def test_a_block_of_blockinfile_is_unchanged(rebuild, tmp_path):
    """Nodes provisioned with ansible.builtin.blockinfile change nothing."""
    for place in ("BOF", "EOF"):
        path = tmp_path / "home" / place
        path.write_text("mine\n")
        line = [os.path.join(os.path.dirname(sys.executable), "ansible"), "localhost"]
        line += ["-i", "localhost,", "-c", "local", "-m", "ansible.builtin.blockinfile"]
        line += ["-e", "ansible_python_interpreter=" + sys.executable, "-a"]
        line += [
            "path=%s marker='%s' insert%s=%s block='a\nb' mode=0600"
            % (path, MARKER, {"BOF": "before", "EOF": "after"}[place], place)
        ]
        subprocess.check_output(line, env=dict(os.environ, LC_ALL="C.UTF-8"))
        assert BLOCK % "a\nb" in path.read_text()
        assert not rebuild("a\nb", path=place, place=place)["changed"]


@needs.root
@pytest.mark.parametrize("link", ["file", "folder"])
def test_root_does_not_follow_a_users_link(rebuild, tmp_path, link):
    """The module cannot read a file of root through a user's link, as the user cannot."""
    theirs, home = tmp_path / "roots", tmp_path / "home"
    theirs.mkdir(mode=0o755)
    (theirs / "config").write_text("root's\n")
    nobody = pwd.getpwnam("nobody")
    os.chown(str(home), nobody.pw_uid, nobody.pw_gid)
    if link == "folder":
        (home / ".ssh").symlink_to(theirs)
    else:
        (home / ".ssh").mkdir()
        os.chown(str(home / ".ssh"), nobody.pw_uid, nobody.pw_gid)
        (home / ".ssh" / "config").symlink_to(theirs / "config")
    told = rebuild("let me in", user="nobody")
    assert told["failed"] and "cannot be written by nobody" in told["msg"], told
    assert (theirs / "config").read_text() == "root's\n" and os.listdir(str(theirs)) == ["config"]
    assert theirs.stat().st_uid == 0 and mode(theirs) == 0o755


def test_a_users_link_to_an_own_file_is_followed(rebuild, tmp_path):
    """Dotfiles in another folder stay there."""
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles" / "bashrc").write_text("mine\n")
    (tmp_path / "home" / ".bashrc").symlink_to(tmp_path / "dotfiles" / "bashrc")
    assert rebuild("new", path=".bashrc", mode="0644")["changed"]
    assert (tmp_path / "home" / ".bashrc").is_symlink()
    assert (tmp_path / "dotfiles" / "bashrc").read_text() == "mine\n" + BLOCK % "new"


@pytest.mark.slow
def test_check_mode_accepts_a_user_that_does_not_exist_yet(rebuild):
    told = rebuild("new", user="nobody-of-that-name", check=True)
    assert told["changed"] and told["home"] == "/home/nobody-of-that-name"
    assert told["diff"][0]["after"] == BLOCK % "new"
    assert "run provision.yml" in rebuild("new", user="nobody-of-that-name")["msg"]
