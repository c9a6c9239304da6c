"""The action plugin mxcluster_downloads. tests/unit/cluster has the downloads themselves."""

import hashlib

import pytest

from mxcluster import file_io
from mxcluster.cluster import archives, extra_packages
from mxcluster.model.software import Environment
from plugins.action import mxcluster_downloads
from tests import ansible_modules

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
