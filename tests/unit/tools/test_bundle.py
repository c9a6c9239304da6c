"""Unpacking a bundle: all of it or nothing, and only with its digest."""

import hashlib
import io
import tarfile

import pytest

from mxcluster.cluster import archives, extra_packages
from mxcluster.errors import MxclusterError
from tests.unit.cluster.test_extra_packages import ENVIRONMENT, Index, wish
from tools import bundle


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Return a function that writes a bundle with one member; the cache is the test's own."""
    monkeypatch.setattr(bundle, "CACHE", tmp_path / "cache")

    def pack(name, content=b"a wheel"):
        path = tmp_path / "bundle.tar"
        with tarfile.open(str(path), "w") as archive:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        (tmp_path / "bundle.tar.sha256").write_text(
            hashlib.sha256(path.read_bytes()).hexdigest() + "  bundle.tar\n"
        )
        return path

    return pack


def unpacked(tmp_path):
    return sorted(
        str(path.relative_to(tmp_path / "cache"))
        for path in (tmp_path / "cache").rglob("*")
        if path.is_file()
    )


def test_a_bundle_is_unpacked(packed, tmp_path):
    bundle.unpack(str(packed("wheels/a.whl")))
    assert unpacked(tmp_path) == ["wheels/a.whl"]


@pytest.mark.parametrize("harm", [lambda content: content.replace(b"a w", b"A w"), lambda _: b""])
def test_a_cut_or_changed_bundle_is_refused(packed, tmp_path, harm):
    path = packed("wheels/a.whl")
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(SystemExit, match="(?s)is damaged.*Copy the bundle again"):
        bundle.unpack(str(path))
    assert unpacked(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["wheels/../../a", "/etc/a", "elsewhere/a", "wheels/.lock", "wheels/a/b", "wheels/"]
)
def test_a_foreign_member_is_refused(packed, tmp_path, name):
    with pytest.raises(SystemExit, match="not part of a bundle"):
        bundle.unpack(str(packed(name)))
    assert unpacked(tmp_path) == []


def test_a_bundle_without_its_digest_is_refused(packed, tmp_path):
    path = packed("wheels/a.whl")
    (tmp_path / "bundle.tar.sha256").unlink()
    with pytest.raises(SystemExit, match="A bundle consists of two files"):
        bundle.unpack(str(path))


def test_a_bundle_has_each_line_of_ansible_core_that_runs_on_its_python():
    assert bundle.lines((3, 10)) == ["2.16"]
    assert bundle.lines((3, 11)) == ["2.16", "2.19"]
    assert bundle.lines((3, 13)) == bundle.lines((3, 12))[1:]
    assert len(bundle.lines((3, 12))) == len(list(bundle.PROJECT.glob("requirements/core-*.txt")))


def test_a_full_disk_leaves_no_partial_file(packed, tmp_path, monkeypatch):
    def full(source, target):
        target.write(b"a")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle.shutil, "copyfileobj", full)
    with pytest.raises(SystemExit, match="No space left on device"):
        bundle.unpack(str(packed("wheels/a.whl")))
    assert unpacked(tmp_path) == []


def test_packages_are_bundled_for_every_python_with_wheels(tmp_path, monkeypatch, capsys):
    """A site without a network then needs no index for the same requirements."""
    monkeypatch.setattr(bundle, "CACHE", tmp_path / "cache")
    index = Index("six-1")

    def fetch(folder, names, pinned, python, store):
        if python == "3.11":
            raise MxclusterError("no wheel of six for Python 3.11")
        index(folder, names, pinned, python, store)

    found = bundle.packages_of(ENVIRONMENT, wish("six"), fetch)
    assert [path.split("/")[-1].split("-")[0] for path in found] == ["packages", "six"]
    assert (
        "lacks packages for Python 3.11: mxnet_packages: no wheel of six" in capsys.readouterr().out
    )
    site = tmp_path / "site"
    site.mkdir()
    for path in found:
        (site / path.split("/")[-1]).write_bytes(open(path, "rb").read())
    known = extra_packages.extended(ENVIRONMENT, wish("six"), "3.6", str(site), known_only=True)
    assert known.builds[0].wheels[-1] == "six==1"
    with pytest.raises(SystemExit, match="no Python of MXNet has wheels of all requested packages"):
        bundle.packages_of(ENVIRONMENT.replaced(builds=ENVIRONMENT.builds[1:]), wish("six"), fetch)
    assert bundle.packages_of(ENVIRONMENT, [], fetch) == []


def test_a_bundle_holds_cuda_and_the_libraries_of_the_pair(tmp_path, monkeypatch):
    libraries = ["cudnn-10.2-linux-x64-v8.2.4.15.tgz", "nccl_2.11.4-1+cuda10.2_x86_64.txz"]
    fetched = []
    monkeypatch.setattr(bundle, "CACHE", tmp_path)
    monkeypatch.setattr(archives, "provide", lambda store, file: fetched.append(file) or file.name)
    found = {name for kind, name in bundle.files("1.9.1", "cu102", "http://mirror")}
    assert set(libraries + ["7fa2af80.pub", "D42D0685.pub"]) < found
    others = found - set(libraries)
    assert len(others) > 2 and all(name.endswith((".pub", ".rpm")) for name in others)
    assert all(file.url.startswith("http://mirror/") for file in fetched)
