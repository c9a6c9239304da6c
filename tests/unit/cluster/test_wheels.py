"""The controller's store of wheels: which wheels fit, and the check of their digests."""

import hashlib
import os
import tarfile

import pytest

from mxcluster.cluster import wheels
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.model.shapes import Wrong
from mxcluster.model.software import Environment

GOOD = b"the wheel"
REQUIREMENT = "MXNet_x==1.9.1 --hash=sha256:%s --hash=sha256:%s" % (
    "0" * 64,
    hashlib.sha256(GOOD).hexdigest(),
)
FILE = "mxnet_x-1.9.1-py3-none-manylinux2014_x86_64.whl"


@pytest.mark.parametrize(
    "name, python, fit",
    [
        (FILE, "3.11", True),
        ("mxnet_x-1.9.1-py3-none-any.whl", "3.6", True),
        ("mxnet_x-1.9.1-cp36-abi3-manylinux2014_x86_64.whl", "3.11", True),
        ("mxnet_x-1.9.1-cp312-abi3-manylinux2014_x86_64.whl", "3.11", False),
        ("mxnet_x-1.9.1-cp311-cp311-manylinux_2_17_aarch64.whl", "3.11", False),
        ("mxnet_x-1.9.1-cp310-cp310-linux_x86_64.whl", "3.11", False),
        ("mxnet_x-1.9.10-py3-none-any.whl", "3.11", False),
        ("mxnet_x-1.9.1-py2-none-any.whl", "3.6", False),
    ],
)
def test_a_wheel_fits_by_its_name(name, python, fit):
    assert wheels.fits(name, "mxnet-x", "1.9.1", python) is fit


HASH = "--hash=sha256:" + "0" * 64


@pytest.mark.parametrize(
    "line",
    [
        "",
        "six==1.0",
        "six==1.0 --hash=sha256:0",
        "six==1.0 %s\n--no-index" % HASH,
        "six==1.0 %s --extra-index-url=http://192.0.2.1/%s" % (HASH, HASH),
        "--find-links=.==1.0 " + HASH,
        "../six==1.0 " + HASH,
        "six==1.0/.. " + HASH,
    ],
)
def test_a_line_with_more_than_a_name_a_version_and_digests_is_refused(line, tmp_path):
    """pip would obey an option in the line, such as another index or the build of sources."""
    with pytest.raises(BadInput, match="of the wheels is malformed: correct it in"):
        wheels.parse(line)
    with pytest.raises(BadInput, match="malformed"):
        wheels.download(str(tmp_path), [REQUIREMENT, line], "3.11")
    need = wheels.Need(digest="0" * 64, python="3.6", requirements=[REQUIREMENT, line])
    with pytest.raises(BadInput, match="malformed"):
        wheels.archives(str(tmp_path / "store"), [need], str(tmp_path / "carry"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong", [{"python": "3.11/../../x"}, {"python": "../x"}, {"digest": "../x"}, {"digest": "d"}]
)
def test_only_checked_words_become_parts_of_a_files_name(wrong):
    need = {"digest": "0" * 64, "python": "3.6", "requirements": []}
    assert wheels.Need.decode(need).encode() == need
    with pytest.raises(Wrong, match="x'|'d'"):
        wheels.Need.decode(dict(need, **wrong))


def test_the_needs_of_a_node_come_from_the_table():
    builds = [{"python": ["3.6"], "wheels": ["mxnet==1"], "pip": "pip==2"}]
    digests = {"mxnet==1": ["a" * 64], "pip==2": ["b" * 64]}
    table = Environment.decode({"builds": builds, "hashes": digests, "name": "MXNet 1"})
    found = wheels.needs(table, "3.6")
    assert found.requirements == [
        "mxnet==1 --hash=sha256:" + "a" * 64,
        "pip==2 --hash=sha256:" + "b" * 64,
    ]
    with pytest.raises(BadInput, match="MXNet 1 has no wheels for Python .3.7., only for"):
        wheels.needs(table, "3.7")
    with pytest.raises(BadInput, match="the line 'mxnet==1' of the wheels is malformed"):
        wheels.needs(table.replaced(hashes={}), "3.6")


def fetcher(content, calls):
    def fetch(folder, requirements, python):
        calls.append((requirements, python))
        with open(folder + "/" + FILE, "wb") as target:
            target.write(content)

    return fetch


def test_a_wheel_is_fetched_once(tmp_path):
    calls = []
    for _ in range(2):
        assert wheels.provide(str(tmp_path), [REQUIREMENT], "3.11", fetcher(GOOD, calls)) == [
            str(tmp_path / FILE)
        ]
    assert calls == [([REQUIREMENT], "3.11")] and [path.name for path in tmp_path.iterdir()] == [
        FILE
    ]


def test_a_wheel_with_a_wrong_digest_is_fetched_again(tmp_path):
    (tmp_path / FILE).write_bytes(GOOD[:4])
    calls = []
    assert wheels.provide(str(tmp_path), [REQUIREMENT], "3.11", fetcher(GOOD, calls)) == [
        str(tmp_path / FILE)
    ]
    assert len(calls) == 1 and (tmp_path / FILE).read_bytes() == GOOD


def test_a_download_with_a_wrong_digest_is_refused(tmp_path):
    with pytest.raises(MxclusterError) as refusal:
        wheels.provide(str(tmp_path), [REQUIREMENT], "3.11", fetcher(b"another", []))
    for part in ("MXNet_x 1.9.1", "Python 3.11", "0" * 64, str(tmp_path)):
        assert part in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_message_says_where_to_put_the_wheel(tmp_path):
    def fetch(folder, requirements, python):
        raise MxclusterError("no route to the index")

    with pytest.raises(
        MxclusterError,
        match="could not fetch the wheel.*into %s on the controller. pip says:\nno route"
        % tmp_path,
    ):
        wheels.provide(str(tmp_path), [REQUIREMENT], "3.11", fetch)


def test_wheels_are_packed_once_per_digest(tmp_path):
    store, carry = tmp_path / "store", tmp_path / "carry"
    store.mkdir()
    (store / FILE).write_bytes(GOOD)
    if os.geteuid() == 0:
        os.chown(str(store / FILE), 4711, 4711)
    digest = "d" * 64
    need = wheels.Need(digest=digest, python="3.11", requirements=[REQUIREMENT])
    found = wheels.archives(str(store), [need, need], str(carry))
    assert found == {digest: str(carry / "wheels-py3.11-dddddddddddd.tar")}
    assert [str(path) for path in carry.iterdir()] == list(found.values())
    with tarfile.open(found[digest]) as archive:
        assert archive.getnames() == [FILE] and archive.extractfile(FILE).read() == GOOD
        member = archive.getmember(FILE)
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")


def test_leftovers_of_a_killed_download_are_removed(tmp_path):
    (tmp_path / ".fetch-old").mkdir()
    (tmp_path / ".fetch-old" / FILE).write_bytes(GOOD[:4])
    (tmp_path / FILE).write_bytes(GOOD)
    (tmp_path / ".lock").write_text("")
    (tmp_path / ".lock").chmod(0o644)
    with wheels.locked(str(tmp_path)):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", FILE]
        assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o600, "other users can hold the lock"
