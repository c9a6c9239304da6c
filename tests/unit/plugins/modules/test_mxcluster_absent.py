"""mxcluster_absent under the Pythons of nodes: it removes what is mxcluster's, and nothing else."""

import base64
import importlib
import json
import os
import pwd
import subprocess

import pytest

from tests import ansible_modules, needs
from tests.pythons import python_of

PYTHONS = ["2.7", "3.6", "controller"]
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture(params=PYTHONS)
def act(request, tmp_path):
    """Return a function that runs the module with one path."""

    def run(path, check=False, user="", **options):
        given = {name: options.pop(name) for name in ("seen", "others", "here") if name in options}
        return ansible_modules.run(
            "mxcluster_absent",
            tmp_path,
            under=python_of(request.param),
            check=check,
            user=user,
            paths=[dict(path=str(path), **options)],
            **given,
        )

    return run


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def removed(answer, path):
    """Return True if the module has removed `path`, False if it has named a reason for its stay."""
    assert not answer.get("failed"), answer
    assert answer["changed"] == bool(answer["removed"]), answer
    assert (answer["removed"] == [str(path)]) != (str(path) in answer["kept"]), answer
    return answer["removed"] == [str(path)]


@pytest.mark.slow
def test_a_file_goes_once_and_in_check_mode_not_at_all(act, tmp_path):
    path = tmp_path / "unit"
    path.write_text("a\n")
    assert removed(act(path, check=True), path) and path.exists()
    assert removed(act(path), path) and not path.exists()
    assert act(path)["removed"] == [] == list(act(path)["kept"])


@pytest.mark.slow
def test_a_file_that_a_person_has_changed_stays(act, tmp_path):
    """It is neither what the role would write now, nor what the last provisioning has left."""
    path = tmp_path / "unit"
    path.write_text("of a person\n")
    contents = [encoded("of the role\n")]
    answer = act(path, contents=contents)
    assert not removed(answer, path) and "changed by hand" in answer["kept"][str(path)]
    old = {str(path): json.dumps(["0o100644", 0, 0, 1, "1.0", "1.0"])}
    assert not removed(act(path, seen=old), path)
    assert not removed(act(path, contents=contents, seen=old), path)
    path.write_text("of the role\n")
    assert removed(act(path, contents=contents, seen=old), path)


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_a_file_of_an_older_version_goes_if_nobody_has_touched_it(tmp_path, version):
    path, under = tmp_path / "unit", python_of(version)
    path.write_text("of an older version\n")
    seen = ansible_modules.run("mxcluster_drift", tmp_path, under=under, files=[str(path)])["seen"]
    answer = ansible_modules.run(
        "mxcluster_absent",
        tmp_path,
        under=under,
        paths=[{"path": str(path), "contents": [encoded("of the role\n")]}],
        seen={str(path): json.dumps(seen[str(path)])},
    )
    assert removed(answer, path)


@pytest.mark.slow
def test_a_folder_goes_with_its_content_and_no_target_of_a_link(act, tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "env"
    outside.mkdir()
    (outside / "file").write_text("")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("")
    (folder / "link").symlink_to(outside)
    (folder / "closed").mkdir(mode=0)
    answer = act(folder, kind="folder")
    assert removed(answer, folder) and not folder.exists() and (outside / "file").exists()
    folder.symlink_to(outside)
    assert not removed(act(folder, kind="folder"), folder) and (outside / "file").exists()


@pytest.mark.slow
def test_only_an_empty_folder_goes_if_other_files_may_be_there(act, tmp_path):
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "site").write_text("")
    answer = act(folder, kind="empty")
    assert not removed(answer, folder) and answer["kept"][str(folder)] == "holds site"
    assert not removed(act(folder, kind="empty", check=True), folder)
    (folder / "site").unlink()
    assert removed(act(folder, kind="empty", check=True), folder) and folder.exists()
    assert removed(act(folder, kind="empty"), folder) and not folder.exists()


@pytest.mark.slow
def test_a_folder_without_jobs_goes_with_the_bookkeeping_in_it(act, tmp_path):
    """A job that has come meanwhile stays, and so does the bookkeeping beside it."""
    jobs, given = tmp_path / "jobs", dict(kind="empty", minor=[".tickets", ".*.lock"])
    (jobs / ".tickets").mkdir(parents=True)
    (jobs / ".tickets" / "waiting.json").write_text("{}")
    (jobs / ".starting.lock").write_text("")
    assert removed(act(jobs, check=True, **given), jobs) and (jobs / ".tickets").exists()
    (jobs / "long").mkdir()
    answer = act(jobs, **given)
    assert not removed(answer, jobs) and answer["kept"][str(jobs)] == "holds long"
    assert (jobs / ".tickets" / "waiting.json").exists()
    (jobs / "long").rmdir()
    assert removed(act(jobs, **given), jobs) and not jobs.exists()


@pytest.mark.slow
def test_a_folder_that_nodes_of_another_run_share_stays(act, tmp_path):
    folder = tmp_path / "env"
    folder.mkdir()
    shared = dict(kind="folder", shared=True)
    answer = act(folder, others=["beta", "gamma"], here=["gamma"], **shared)
    assert not removed(answer, folder) and answer["kept"][str(folder)] == (
        "gamma may use it, too, and --limit leaves them out"
    )
    assert removed(act(folder, others=["beta"], **shared), folder)  # on a disk of this node


BLOCK = "# BEGIN of ours\nkey\n# END of ours\n"


@pytest.mark.slow
def test_a_block_goes_and_the_lines_of_a_person_stay(act, tmp_path):
    path = tmp_path / "config"
    given = dict(kind="block", marker="# {mark} of ours")
    path.write_text("Host x\n" + BLOCK + "# own\n")
    path.chmod(0o600)
    assert removed(act(path, check=True, **given), path) and "key" in path.read_text()
    assert removed(act(path, **given), path) and path.read_text() == "Host x\n# own\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert act(path, **given)["removed"] == []
    path.write_text(BLOCK)
    assert removed(act(path, **given), path) and not path.exists()
    path.write_text("# BEGIN of ours\nkey\n")  # somebody has removed the last line
    assert act(path, **given)["removed"] == [] and path.exists()


def test_a_missing_user_has_no_files(act):
    answer = act("~/.ssh/config", kind="block", marker="{mark}", user="nobody-of-that-name")
    assert not answer["changed"] and not answer.get("failed")


@pytest.mark.slow
@needs.root
def test_root_empties_a_folder_of_a_user_with_the_rights_of_that_user(act, tmp_path):
    """A user's link leads root nowhere. A folder of root in it stays, and is named."""
    jobs, secret = tmp_path / "jobs", tmp_path / "secret"
    secret.mkdir(mode=0o700)
    (secret / "key").write_text("")
    (jobs / "one").mkdir(parents=True)
    (jobs / "one" / "log").write_text("")
    (jobs / "link").symlink_to(secret)
    own(jobs)
    (jobs / "of root").mkdir()
    (jobs / "of root" / "file").write_text("")
    answer = act(jobs, kind="folder")
    assert not removed(answer, jobs) and "Permission denied" in answer["kept"][str(jobs)]
    (jobs / "of root" / "file").unlink()
    assert removed(act(jobs, kind="folder"), jobs)
    assert not jobs.exists() and (secret / "key").exists()


@needs.root
def test_a_users_link_in_the_bookkeeping_leads_root_nowhere(act, tmp_path):
    jobs, secret = tmp_path / "jobs", tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("")
    jobs.mkdir()
    for name in (".tickets", ".removed-one"):
        (jobs / name).symlink_to(secret)
    own(jobs)
    answer = act(jobs, kind="empty", minor=[".tickets", ".removed-*"])
    assert removed(answer, jobs) and not jobs.exists() and (secret / "key").exists()


@pytest.mark.slow
@needs.root
def test_a_users_link_leads_to_no_block_of_a_file_of_root(act, tmp_path):
    """The user may read the file of root, and may not write it. A FIFO does not stop the module."""
    home, victim = tmp_path / "home", tmp_path / "victim"
    victim.write_text("Host x\n" + BLOCK)
    home.mkdir()
    (home / "config").symlink_to(victim)
    os.mkfifo(str(home / "known_hosts"))
    own(home)
    given = dict(kind="block", marker="# {mark} of ours", user="nobody")
    answer = act(home / "config", **given)
    assert not removed(answer, home / "config")
    assert "Permission denied" in answer["kept"][str(home / "config")]
    assert victim.read_text() == "Host x\n" + BLOCK
    assert act(home / "known_hosts", **given)["removed"] == []


@pytest.mark.slow
@needs.mounts
def test_a_folder_with_a_mounted_folder_stays_as_a_whole(act, tmp_path):
    """A bind mount has the device of the folders around it."""
    data, disk = tmp_path / "data", tmp_path / "disk"
    (data / "cifar").mkdir(parents=True)
    (data / "digits").write_text("")
    disk.mkdir()
    (disk / "file").write_text("")
    subprocess.run(["mount", "--bind", str(disk), str(data / "cifar")], check=True)
    try:
        for check in (True, False):
            answer = act(data, kind="folder", check=check)
            assert not removed(answer, data)
            assert "is mounted on %s" % (data / "cifar") in answer["kept"][str(data)]
    finally:
        subprocess.run(["umount", str(data / "cifar")], check=True)
    assert (disk / "file").exists() and (data / "digits").exists()
    assert removed(act(data, kind="folder"), data)


@needs.root
def test_the_files_of_a_removed_account_go(act, tmp_path):
    home = tmp_path / "home"
    (home / "in").mkdir(parents=True)
    own(home, 54321)
    assert removed(act(home, kind="folder"), home) and not home.exists()


@needs.root
def test_root_removes_nothing_in_a_folder_that_other_users_can_change(act, tmp_path):
    folder = tmp_path / "theirs" / "env"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o777)
    answer = act(folder, kind="folder")
    assert not removed(answer, folder)
    assert "other users can change %s" % folder.parent in answer["kept"][str(folder)]


def own(folder, uid=NOBODY.pw_uid):
    """Give a folder and its content to a user."""
    for parent, folders, files in os.walk(str(folder)):
        for name in [parent] + [os.path.join(parent, name) for name in folders + files]:
            os.lchown(name, uid, NOBODY.pw_gid)


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/opt /opt nfs4 rw 0 0
/dev/sdb1 /opt/mxcluster/jobs ext4 rw 0 0
gluster /srv/my\\040data fuse.glusterfs rw 0 0
"""


def test_a_network_file_system_is_found_by_the_longest_mount(tmp_path):
    removal = importlib.import_module("ansible.module_utils.mxcluster_removal")
    (tmp_path / "mounts").write_text(MOUNTS)
    found = {
        path: removal.network_of(path, str(tmp_path / "mounts"))
        for path in ("/etc", "/opt/mxcluster/env", "/opt/mxcluster/jobs/a", "/srv/my data", "/optx")
    }
    assert found == {
        "/etc": "",
        "/opt/mxcluster/env": "nfs4",
        "/opt/mxcluster/jobs/a": "",
        "/srv/my data": "fuse.glusterfs",
        "/optx": "",
    }


def test_a_mount_with_any_name_is_found(tmp_path):
    """The name of a mount point need not be UTF-8, and has escape sequences."""
    removal = importlib.import_module("ansible.module_utils.mxcluster_removal")
    (tmp_path / "mounts").write_bytes(
        b"a /mnt/m\xfcll ext4 rw 0 0\nb /srv/a\\134b\\011c nfs rw 0 0\n"
    )
    mounts = str(tmp_path / "mounts")
    assert removal.network_of("/srv/a\\b\tc/env", mounts) == "nfs"
    with pytest.raises(removal.Kept, match="is mounted on /mnt/m"):
        removal.check_mounts("/mnt", mounts)
