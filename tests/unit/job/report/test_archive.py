import io
import os
import tarfile

import pytest

from mxcluster.errors import BadInput
from mxcluster.job.report import archive


def make_tar(path, *members, **files):
    """Write a tar file with the given TarInfos and the files {name: text}; return its path."""
    with tarfile.open(str(path), "w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return str(path)


def member(name, kind=tarfile.REGTYPE, target="", size=0, mode=0o644, owner=0):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, target, size, mode
    info.uid = info.gid = owner
    return info


def test_unpack_writes_files_into_the_folder(tmp_path):
    path = make_tar(
        tmp_path / "a.tar",
        member("checkpoints", tarfile.DIRTYPE),
        status="{}",
        checkpoints__m="weights",
    )
    archive.unpack(path, str(tmp_path / "to"))
    assert (tmp_path / "to" / "status").read_text() == "{}"
    assert (tmp_path / "to" / "checkpoints" / "m").read_text() == "weights"


@pytest.mark.parametrize(
    "bad",
    [
        member("/etc/passwd", size=1),
        member("../up", size=1),
        member("link", tarfile.SYMTYPE, "/etc"),
        member("hard", tarfile.LNKTYPE, "good"),
        member("pipe", tarfile.FIFOTYPE),
        member("terminal", tarfile.CHRTYPE),
        member("sparse", tarfile.GNUTYPE_SPARSE),
        member("./good", size=1),
        member("what", b"Z"),
    ],
    ids=lambda info: info.name,
)
def test_an_archive_with_an_unsafe_member_is_refused_as_a_whole(tmp_path, bad):
    path = make_tar(tmp_path / "a.tar", member("good", size=1), bad)
    with pytest.raises(BadInput, match="a.tar was not unpacked: its? .*find this program"):
        archive.unpack(path, str(tmp_path / "deep" / "to"))
    assert [found.name for found in tmp_path.rglob("*")] == ["a.tar"]


def test_unpacked_files_keep_neither_owner_nor_mode_of_the_node(tmp_path):
    """An earlier version unpacked a setuid-root file from a node."""
    path = make_tar(
        tmp_path / "a.tar",
        member("folder", tarfile.DIRTYPE, mode=0o7777, owner=1),
        member("private", mode=0o600),
        member("root", size=1, mode=0o6755, owner=0),
        member("folder/other", size=1, mode=0o7777, owner=65534),
    )
    archive.unpack(path, str(tmp_path / "to"))
    found = {
        str(path.relative_to(tmp_path / "to")): path.stat() for path in (tmp_path / "to").rglob("*")
    }
    assert {name: oct(seen.st_mode & 0o7777) for name, seen in found.items()} == {
        "folder": "0o755",
        "private": "0o600",
        "root": "0o644",
        "folder/other": "0o644",
    }
    assert {(seen.st_uid, seen.st_gid) for seen in found.values()} == {(os.getuid(), os.getgid())}


def test_a_compressed_archive_cannot_fill_the_disk(tmp_path):
    with tarfile.open(str(tmp_path / "a.tar"), "w:gz") as tar:
        tar.addfile(member("zeros", size=1 << 24), io.BytesIO(bytes(1 << 24)))
    assert (tmp_path / "a.tar").stat().st_size < 1 << 16
    assert "a" in archive.unpack_all({"a": str(tmp_path / "a.tar")}, str(tmp_path / "run"))
    assert not list((tmp_path / "run").rglob("zeros"))


def test_a_bad_archive_affects_its_own_node_only(tmp_path):
    (tmp_path / "torn.tar").write_bytes(b"this is no tar file")
    problems = archive.unpack_all(
        {
            "good": make_tar(tmp_path / "good.tar", **{"worker-0.log": "hello"}),
            "evil": make_tar(tmp_path / "evil.tar", member("../up", size=1)),
            "gone": str(tmp_path / "gone.tar"),
            "torn": str(tmp_path / "torn.tar"),
            "none": None,
        },
        str(tmp_path / "run"),
    )
    assert sorted(problems) == ["evil", "gone", "none", "torn"]
    assert "../up" in problems["evil"] and "collected no archive from" in problems["none"]
    assert (tmp_path / "run" / "nodes" / "good" / "worker-0.log").read_text() == "hello"


def test_checkpoints_of_all_nodes_are_gathered(tmp_path):
    archives = {
        host: make_tar(
            tmp_path / (host + ".tar"), checkpoints__m=host, **{"checkpoints__" + host: host}
        )
        for host in ("node1", "node2")
    }
    for _ in range(2):  # the second time gives the same
        assert archive.unpack_all(archives, str(tmp_path / "run")) == {}
        found = {
            path.name: path.read_text() for path in (tmp_path / "run" / "checkpoints").iterdir()
        }
        assert found == {"m": "node1", "node1": "node1", "node2": "node2", "node2-m": "node2"}
    assert not list((tmp_path / "run" / "nodes").rglob("checkpoints"))


def test_the_files_of_an_earlier_report_stay_without_an_archive(tmp_path):
    """They may be the only ones, because the start of a later job removes the node's folder."""
    path = make_tar(tmp_path / "node1.tar", **{"worker-0.log": "hello"})
    run = str(tmp_path / "run")
    assert archive.unpack_all({"node1": path, "node2": path}, run) == {}
    assert sorted(archive.unpack_all({"node1": None, "node2": path + "-gone"}, run)) == [
        "node1",
        "node2",
    ]
    for host in ("node1", "node2"):
        assert (tmp_path / "run" / "nodes" / host / "worker-0.log").read_text() == "hello"


def test_a_checkpoint_of_a_script_replaces_the_one_that_came_while_it_ran(tmp_path):
    there = tmp_path / "run" / "checkpoints" / "worker-0-0001"
    there.mkdir(parents=True)
    (there / "step").write_text("half")
    (there / "old").write_text("x")
    path = make_tar(
        tmp_path / "node1.tar", **{"checkpoints__worker-0-0001__step": "1", "checkpoints__a": "2"}
    )
    for _ in range(2):
        assert archive.unpack_all({"node1": path}, str(tmp_path / "run")) == {}
        assert [(one.name, one.read_text()) for one in there.iterdir()] == [("step", "1")]
