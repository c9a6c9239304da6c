"""Root's tasks for a training user are safe against links of that user. Needs root."""

import os
import pwd
import shutil
import stat
import subprocess

import pytest
import yaml

from tests import needs
from tests.playbooks.conftest import SOURCE, role

pytestmark = needs.root
HARMLESS, OTHER = "nobody", "daemon"
STARTED = ("__train_job_started", "__train_job_begun")  # as after the start of a job


def give(path, user=HARMLESS):
    """Make a folder that belongs to the user."""
    path.mkdir()
    os.chown(str(path), pwd.getpwnam(user).pw_uid, -1)
    return path


def owner(path):
    return pwd.getpwuid(path.lstat().st_uid).pw_name


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def as_user(user, *command):
    return subprocess.run(
        ["runuser", "-u", user, "--"] + [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
    )


@pytest.fixture
def room(tmp_path):
    """Make a folder of root, a folder of the training user, and data on the controller."""
    for name in ("roots", "source"):
        (tmp_path / name).mkdir()
    (tmp_path / "roots" / "shadow").write_text("root's\n")
    (tmp_path / "source" / "deep").mkdir()
    (tmp_path / "source" / "train.rec").write_bytes(b"x" * 3000000)
    (tmp_path / "source" / "deep" / "labels").write_text("seven\n")
    give(tmp_path / "users")
    return tmp_path


@pytest.fixture
def data(play, room):
    """Copy the data as train.yml does; return (changed, message of the refusal)."""

    def bring(where, trainers=("one",), **variables):
        options = {"data_src": str(room / "source"), "data_dir": str(where)}
        results = play(
            role("train_job", "bring.yml"),
            mxcluster_user=variables.pop("mxcluster_user", HARMLESS),
            train_job_planned={
                "script": "",
                "model": "",
                "resume": [],
                "options": options,
                "trainers": trainers,
            },
            **variables,
        )
        return results["train_job : Copy the training data to the node"].get("changed"), results[
            "refused"
        ]

    return bring


def test_nothing_of_ansibles_is_left_when_a_module_acts_as_the_user(play, room):
    """A module that acts as the user leaves no temporary files, and still reports a failure.

    Each poll once left 100 kB in /tmp. The fixture `play` checks the folder.
    """
    results = play(
        [
            {
                "name": "write",
                "mxcluster_file": {
                    "path": str(room / "users" / "file"),
                    "content": "",
                    "user": HARMLESS,
                },
            },
            {"name": "rebuild", "mxcluster_ssh": {"user": HARMLESS, "blocks": []}},
            {
                "name": "ask",
                "mxcluster_node": {
                    "command": "jobs",
                    "python": "/bin/false",
                    "jobs_dir": "/",
                    "user": HARMLESS,
                },
            },
        ],
    )
    assert results["write"]["changed"] and owner(room / "users" / "file") == HARMLESS
    assert results["rebuild"]["home"] == pwd.getpwnam(HARMLESS).pw_dir
    assert "ended with status 1 and without an answer" in results["refused"], results


def test_data_come_as_the_training_user(data, room):
    """Root makes the folder for the training user; existing files are not transferred again."""
    where = room / "srv" / "mnist"
    assert data(where) == (True, "")
    assert (where / "deep" / "labels").read_text() == "seven\n" and (
        where / "train.rec"
    ).stat().st_size == 3000000
    assert owner(where.parent) == "root" and {
        owner(path) for path in [where, *where.rglob("*")]
    } == {HARMLESS}
    assert data(where) == (False, "")
    (where / "train.rec").write_bytes(b"x" * 2999999 + b"y")
    assert data(where) == (True, "") and (where / "train.rec").read_bytes() == b"x" * 3000000
    assert (
        not any(data(room / "elsewhere", trainers=[])) and not (room / "elsewhere").exists()
    )  # this node runs no worker
    os.chmod(str(room / "roots"), 0o755)
    assert data(room / "home", mxcluster_user="") == (True, "") and owner(room / "home") == "root"


@pytest.mark.parametrize("trap", ["data_dir", "folder", "file"])
def test_no_link_of_the_training_users_leads_root_astray(data, room, trap):
    """A link of the training user does not redirect root, and a FIFO does not block it.

    A link once gave /etc to the user.
    """
    where = room / "users" / "data"
    if trap == "data_dir":
        where.symlink_to(room / "roots")
    else:
        give(where)
    if trap == "folder":
        (where / "deep").symlink_to(room / "roots")
    elif trap == "file":
        (where / "train.rec").symlink_to(room / "roots" / "shadow")
        os.mkfifo(str(give(where / "deep") / "labels"))
    refused = data(where)[1]
    assert bool(refused) == (trap != "file"), refused
    assert not refused or str(where) in refused and "Permission denied" in refused
    if trap == "file":
        assert (
            (where / "train.rec").is_file()
            and not (where / "train.rec").is_symlink()
            and (where / "deep/labels").is_file()
        )
    assert (
        os.listdir(str(room / "roots")) == ["shadow"]
        and (room / "roots" / "shadow").read_text() == "root's\n"
    )
    assert {owner(room / "roots"), owner(room / "roots" / "shadow")} == {"root"}


def test_root_makes_no_folder_where_others_write(data, room):
    """The user and daemon can write there, so another user could create the folder first."""
    shared = room / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    changed, refused = data(shared / "mnist")
    assert (
        not changed
        and "non-root users can change %s" % shared in refused
        and not (shared / "mnist").exists()
    )


def test_what_is_roots_own_is_refused_in_a_folder_of_anothers(play, room):
    variables = {
        "mxcluster_user": HARMLESS,
        "mxcluster_job_dir": str(room / "jobs"),
        "mxcluster_etc_dir": str(room / "etc"),
    }
    refused = play(role("training_user"), mxcluster_home=str(room / "users" / "home"), **variables)[
        "refused"
    ]
    assert (
        "non-root users can change %s" % (room / "users") in refused
        and os.listdir(str(room / "users")) == []
    )
    (room / "link").symlink_to(room / "users")
    refused = play(role("training_user"), mxcluster_home=str(room / "link" / "home"), **variables)[
        "refused"
    ]
    assert "non-root users can change %s" % (room / "users") in refused
    assert (
        play(role("training_user"), mxcluster_home=str(room / "home"), **variables)["refused"] == ""
    )


def test_jobs_are_nobody_elses_to_read(play, room):
    """The mode is also corrected in folders of an earlier version, which all users could read."""
    jobs = give(room / "jobs")
    results = play(
        role("training_user"),
        mxcluster_user=HARMLESS,
        mxcluster_home=str(room / "home"),
        mxcluster_job_dir=str(jobs),
        mxcluster_etc_dir=str(room / "etc"),
    )
    assert (
        not results["refused"]
        and mode(jobs) == 0o700
        and owner(jobs) == HARMLESS
        and mode(room / "home") == 0o755
    )
    (jobs / "secret").write_text("token")
    assert as_user(HARMLESS, "cat", jobs / "secret").stdout == b"token"
    assert b"Permission denied" in as_user(OTHER, "cat", jobs / "secret").stdout


@pytest.mark.parametrize("task", ["undo", "verify"])
def test_a_jobs_folder_is_removed_as_the_training_user(play, room, task):
    """The removal runs with the user's rights.

    A recursive delete by root would follow links that the user exchanges meanwhile.
    """
    job = give(give(room / "users" / "jobs") / "one")
    os.chown(str(room / "users"), 0, 0)
    os.chmod(str(room / "roots"), 0o700)
    (job / "users").symlink_to(room / "roots")
    (job / "log").write_text("he can remove it")
    if task == "undo":
        tasks = [
            {
                "name": "stop",
                "ansible.builtin.set_fact": {name: {"job": "one"} for name in STARTED},
            },
            *[
                step
                for step in tasks_of("roles/train_job/tasks/undo.yml")
                if "mxcluster_node" not in step
            ],
        ]
    else:
        tasks = [step for step in plays_of("playbooks/verify.yml") if "folder" in step["name"]]
    # a folder of root in the user's folder: the user cannot remove its content
    (job / "kept").mkdir()
    (job / "kept" / "file").write_text("root's")
    variables = {"mxcluster_user": HARMLESS, "train_job_folder": str(job)}
    refused = play(tasks, **variables)["refused"]
    assert (
        "cannot remove %s: Permission denied" % job in refused
        and (job / "kept" / "file").read_text() == "root's"
    )
    shutil.rmtree(str(job / "kept"))
    assert play(tasks, **variables)["refused"] == "" and not job.exists()
    if task == "undo":  # a path that the user cannot look at counts as left behind
        hidden = give(room / "roots" / "one")
        variables["train_job_folder"] = str(hidden)
        refused = play(tasks, **variables)["refused"]
        assert "cannot remove %s: Permission denied" % hidden in refused and hidden.exists()
    assert (room / "roots" / "shadow").read_text() == "root's\n"


def tasks_of(path):
    return yaml.safe_load((SOURCE / path).read_text())


def plays_of(path):
    return [task for play in tasks_of(path) for task in play.get("tasks", [])]
