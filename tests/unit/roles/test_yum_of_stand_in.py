"""The command yum of the stand-in for CentOS 7 is as unfriendly to the roles as yum 3.4.3."""

import os
import pathlib
import signal
import subprocess

import pytest

from mxcluster.cluster import install_failures
from tests.pythons import find_python

CLI = pathlib.Path(__file__).resolve().parents[3] / "molecule/el7/stand_in/root/usr/share/yum-cli"
START = "import sys; sys.path.insert(0, %r); import yummain; sys.exit(yummain.main(sys.argv[1:]))"
LISTED = """\
Available Packages
nvidia-driver-latest-dkms-NvFBCOpenGL.x86_64  3:470.182.03-1.el7  mxcluster-nvidia-driver
make.x86_64                                   3.82-24             base
"""


class Yum:
    """The command with a folder as its root, and with a program in the place of dnf."""

    def __init__(self, root, python):
        self.python, self.root, self.lock = python, root, root / "var/run/yum.pid"
        for name in ("var/run", "etc/yum.repos.d", "usr/libexec/stand-in"):
            (root / name).mkdir(parents=True)
        self.repository("[base]\n[mxcluster-a]\n[mxcluster-b]\nmetadata_expire_filter = never\n")
        self.dnf("")

    def repository(self, text):
        (self.root / "etc/yum.repos.d/all.repo").write_text(text)

    def dnf(self, out, code=0, err=""):
        """Let dnf print `out` and `err`, and end with a status."""
        (self.root / "out").write_text(out)
        (self.root / "err").write_text(err)
        script = '#!/bin/sh\ncd %s\nprintf "%%s\\n" "$@" >argv\ncat out\ncat err >&2\nexit %d\n'
        program = self.root / "usr/libexec/platform-python"
        program.write_text(script % (self.root, code))
        program.chmod(0o755)

    def start(self, *words):
        return subprocess.Popen(
            [self.python, "-B", "-c", START % str(CLI), *words],
            env=dict(os.environ, STAND_IN_ROOT=str(self.root)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words):
        """Return (status, stdout, stderr) of a command."""
        process = self.start(*words)
        out, err = process.communicate()
        return process.returncode, out, err

    def argv(self):
        """Return the arguments of dnf in the last call, without those of each call."""
        return (self.root / "argv").read_text().splitlines()[3:]


@pytest.fixture(scope="module")
def python():
    return find_python("2.7")


@pytest.fixture
def yum(tmp_path, python):
    return Yum(tmp_path, python)


@pytest.mark.slow
def test_a_quiet_check_for_updates_shows_its_status_alone(yum):
    yum.dnf("a-long-name.x86_64  1-1  base\n", 100)
    assert yum("-q", "check-update") == (100, "", "")
    code, out, _ = yum("check-update")
    assert code == 100 and "a-long-name.x86_64" in out
    yum.dnf(LISTED)
    assert "make.x86_64" in yum("-q", "list", "updates")[1]


def test_a_long_line_breaks_after_the_name_and_after_the_version(yum):
    yum.dnf(LISTED)
    assert yum("-q", "list", "available")[1].splitlines() == [
        "Available Packages",
        "nvidia-driver-latest-dkms-NvFBCOpenGL.x86_64",
        " " * 32 + "3:470.182.03-1.el7",
        " " * 48 + "mxcluster-nvidia-driver",
        "make.x86_64                     3.82-24         base",
    ]


def test_a_missing_dependency_has_the_words_of_yum_3(yum):
    needed = "nothing provides grubby needed by nvidia-driver-latest-dkms-3:470.82.01-1.el7.x86_64"
    yum.dnf("", 1, "Error: \n Problem: conflicting requests\n  - %s\n" % needed)
    code, _, err = yum("-y", "install", "nvidia-driver-latest-dkms")
    assert code == 1 and install_failures.lacks_dependencies({"msg": err})
    assert "nothing provides" not in err and "\n           Requires: grubby\n" in err
    yum.dnf("", 1, "Error: another one\n")
    assert yum("-y", "install", "make")[2] == "Error: another one\n"


def test_an_unknown_repository_is_an_error_alone_and_nothing_in_a_list(yum):
    code, _, err = yum("--enablerepo=mxcluster-c", "check-update")
    assert code == 1 and "mxcluster-c, repository not found" in err
    listed = "--enablerepo=mxcluster-a,mxcluster-c"
    assert yum("-q", "--disablerepo=*", listed, "check-update")[0] == 0
    assert yum.argv() == [
        *("-q", "--disablerepo=base,mxcluster-a,mxcluster-b", "--enablerepo=mxcluster-a"),
        "check-update",
    ]


def test_a_list_reads_an_old_cache_unless_the_repository_forbids_it(yum):
    yum("-q", "list", "available")
    old = [word for word in yum.argv() if "metadata_expire" in word]
    assert old == ["--setopt=%s.metadata_expire=-1" % name for name in ("base", "mxcluster-a")]
    for words in (("check-update",), ("install", "make"), ("list", "updates")):
        yum(*words)
        assert not [word for word in yum.argv() if "metadata_expire" in word], words


@pytest.mark.parametrize(
    "words, message",
    [
        (["--repofrompath=a,/a", "list"], "Command line error: no such option: --repofrompath"),
        (["--refresh", "check-update"], "no such option: --refresh"),
        (["repoquery", "make"], "No such command: repoquery"),
        ([], "You need to give some command"),
    ],
)
def test_what_only_dnf_knows_is_refused(yum, words, message):
    code, _, err = yum(*words)
    assert code == 1 and message in err and not (yum.root / "argv").exists()


def test_the_output_says_that_it_is_a_stand_in(yum):
    for words in (["install", "make"], ["--version"]):
        code, out, _ = yum(*words)
        assert code == 0 and "stand-in" in out.splitlines()[0 if words[1:] else 1]


def test_a_held_lock_is_waited_for_and_that_of_a_dead_process_is_not(yum):
    holder = subprocess.Popen(["sleep", "1000"])
    yum.lock.write_text("%d\n" % holder.pid)
    process = yum.start("-q", "install", "make")
    told = process.stderr.readline() + process.stderr.readline()
    assert "another copy is running as pid %d" % holder.pid in told and "waiting" in told
    assert not (yum.root / "argv").exists()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert process.wait() == 0 and yum.argv() == ["-q", "install", "make"]
    assert not yum.lock.exists()
