"""The action plugin mxcluster_downloads. tests/unit/cluster has the downloads themselves."""

import hashlib

import pytest

from mxcluster import file_io
from mxcluster.cluster import archives, extra_packages, own_wheel
from mxcluster.model.software import Environment
from plugins.action import mxcluster_downloads
from tests import ansible_modules, own_wheels

BUILD = {"python": ["3.11"], "pip": "pip==25.0.1", "wheels": ["mxnet==1.9.1"]}
ENVIRONMENT = {"builds": [BUILD], "hashes": {}}


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Return a file with its URL, name and SHA-256, as the role versions gives it."""
    monkeypatch.setattr(archives, "PAUSE", 0.0)
    (tmp_path / "there.tgz").write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    return {"url": (tmp_path / "there.tgz").as_uri(), "name": "a.tgz", "sha256": digest}


def run(check=False, **given):
    return ansible_modules.carry_out(mxcluster_downloads, check, **given)


def test_an_archive_is_downloaded_once_and_not_in_check_mode(tmp_path, file):
    store, given = tmp_path / "store", {"command": "archives", "files": [file, file]}
    told = run(check=True, store=str(store), **given)
    assert told["changed"] and told["fetched"] == ["a.tgz"] and not store.exists()
    assert run(store=str(store), **given)["fetched"] == ["a.tgz"]
    assert (store / "a.tgz").read_bytes() == b"content"
    told = run(store=str(store), **given)
    assert not told["changed"] and told["fetched"] == []


def test_a_file_of_the_store_is_read_once_for_all_nodes(tmp_path, file, monkeypatch):
    """A changed file is read again."""
    monkeypatch.setattr(mxcluster_downloads.C, "DEFAULT_LOCAL_TMP", str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    store, given, read = tmp_path / "store", {"command": "archives", "files": [file]}, []
    store.mkdir()
    (store / "a.tgz").write_bytes(b"content")
    for module in (archives, mxcluster_downloads):
        monkeypatch.setattr(
            module, "sha256", lambda path: read.append(path) or file_io.sha256(path), raising=False
        )
    for _ in range(3):
        assert not run(store=str(store), **given).get("failed")
    assert read == [str(store / "a.tgz")]
    (store / "a.tgz").write_bytes(b"another")
    assert "a.tgz has the sha256" in run(store=str(store), **given)["msg"] and len(read) == 2


def test_packages_are_chosen_under_the_lock_and_not_in_check_mode(tmp_path, monkeypatch):
    made = Environment.decode(dict(ENVIRONMENT, hashes={"six==1.16.0": ["0" * 64]}))
    monkeypatch.setattr(
        extra_packages,
        "extended",
        lambda environment, wanted, python, store, known_only=False: None if known_only else made,
    )
    given = {"packages": ["six"], "environment": ENVIRONMENT, "python": "3.11", "cwd": "/"}
    given.update(command="packages", store=str(tmp_path / "store"))
    told = run(check=True, **given)
    assert told["changed"] and told["hashes"] == {} and not (tmp_path / "store").exists()
    told = run(**given)
    assert told["changed"] and told["hashes"] == made.hashes
    assert (tmp_path / "store" / ".lock").exists()
    told = run(**dict(given, packages={"six": 1}))
    assert told["failed"] and "mxnet_packages={'six': 1} is refused" in told["msg"]


def test_a_wheel_of_the_user_is_read_once_for_all_nodes(tmp_path, monkeypatch):
    """A wheel has up to 900 MB, and the nodes wait for each other at the lock of the store."""
    monkeypatch.setattr(mxcluster_downloads.C, "DEFAULT_LOCAL_TMP", str(tmp_path / "run"))
    for name in ("run", "wheels"):
        (tmp_path / name).mkdir()
    path, read = own_wheels.make(tmp_path / "wheels"), []
    for module in (own_wheel, mxcluster_downloads):
        monkeypatch.setattr(module, "sha256", lambda one: read.append(one) or file_io.sha256(one))
    given = {"command": "own", "wheel": path, "cwd": "/", "store": str(tmp_path / "store")}
    for _ in range(3):
        assert not run(**given).get("failed")
    kept = str(tmp_path / "store" / own_wheels.PLAIN)
    assert (read.count(path), read.count(kept)) == (1, 1)


def test_check_mode_writes_nothing_beside_the_wheel_of_the_user(tmp_path, monkeypatch):
    """The folder of the wheel may be read-only, and the store may not exist yet."""
    monkeypatch.setattr(mxcluster_downloads.C, "DEFAULT_LOCAL_TMP", str(tmp_path / "run"))
    for name in ("run", "wheels"):
        (tmp_path / name).mkdir()
    path, folders = own_wheels.make(tmp_path / "wheels"), []
    real = own_wheel.wheel_library.measure
    monkeypatch.setattr(
        own_wheel.wheel_library, "measure", lambda *args: folders.append(args[1]) or real(*args)
    )
    given = {"command": "own", "wheel": path, "cwd": "/"}
    assert not run(check=True, store=str(tmp_path / "a" / "store"), **given).get("failed")
    assert folders == [str(tmp_path)] and not (tmp_path / "a").exists()
