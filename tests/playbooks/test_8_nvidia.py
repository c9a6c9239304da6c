"""Tasks of the roles cuda and cudnn on this machine, with a program that answers as rpm does."""

import hashlib
import os

import pytest

from tests.playbooks.conftest import role
from tests.unit.roles.test_library_archives import pack, pack_nccl

RPM = """#!/bin/sh
case "$1 $4" in
  "-q "*) printf '%%s\\n' cuda-toolkit-9-2 cuda-toolkit-9-2-9.2.148 \\
      cuda-cublas-9-2 cuda-cublas-9-2-9.2.148 ;;
  "-K "*) echo "$2: %s" ;;
  "-qpl "*) printf '/etc/yum.repos.d/cuda.repo\\n/var/cuda-repo-9-2-local/a.rpm\\n' ;;
esac
"""
VERSIONS = {
    "cuda": {
        "version": "9.2",
        "source": "local_rpm",
        "packages": {"toolkit": {"cuda-toolkit-9-2": "", "cuda-cublas-9-2": "9.2.148.1"}},
        "rpm": [{"name": "a.rpm", "sha256": ""}],
        "keys": [],
    }
}


@pytest.fixture
def rpm(tmp_path, monkeypatch):
    """Lay a program rpm, which says this of a signature, into the way of tasks."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    (tmp_path / "bin").mkdir()

    def lay(says):
        (tmp_path / "bin" / "rpm").write_text(RPM % says)
        (tmp_path / "bin" / "rpm").chmod(0o755)

    return lay


def test_packages_are_asked_for_in_check_mode(play, rpm):
    rpm("")
    show = {"name": "show", "ansible.builtin.debug": {"msg": "{{ __cuda_lacking }}"}}
    told = play(role("cuda", "ask_rpms.yml") + [show], "--check", versions_chosen=VERSIONS)
    assert told["show"]["msg"] == ["cuda-cublas-9-2-9.2.148.1"], told


def test_an_unsigned_rpm_is_refused_by_name_before_anything_is_installed(play, rpm):
    rpm("digests OK")
    options = {"versions_chosen": VERSIONS, "__cuda_lacking": [], "mxcluster_home": "/nowhere"}
    told = play(role("cuda", "local_rpm.yml"), **options)
    assert "/nowhere/cache/cuda/a.rpm has no valid signature of NVIDIA" in str(told), told
    assert "rpm -K says: /nowhere/cache/cuda/a.rpm: digests OK" in str(told), told
    assert "cuda : Install NVIDIA's local RPM repositories on the node" not in told


def test_files_come_to_a_folder_that_is_made(play, tmp_path):
    (tmp_path / "there.rpm").write_text("content")
    digest = hashlib.sha256(b"content").hexdigest()
    file = {"url": (tmp_path / "there.rpm").as_uri(), "name": "a.rpm", "sha256": digest}
    options = {
        "cuda_bring": [file],
        "cuda_store_dir": str(tmp_path / "store"),
        "mxcluster_cache_dir": str(tmp_path / "cache"),
    }
    told = play(role("cuda", "bring.yml"), **options)
    assert not told["refused"] and (tmp_path / "cache/cuda/a.rpm").read_text() == "content"
    told = play(role("cuda", "bring.yml"), **options)
    assert not any(result["changed"] for result in told.values() if "changed" in result)


@pytest.mark.skipif(os.getuid() != 0, reason="ldconfig needs root")
@pytest.mark.parametrize("name", ["nccl", "cudnn"])
def test_a_library_is_installed_once(play, tmp_path, name):
    """The roles nccl and cudnn share the tasks of the role cuda; the second run changes nothing."""
    (tmp_path / "cuda-9.2" / "lib64").mkdir(parents=True)
    archive = {"nccl": pack_nccl, "cudnn": pack}[name](tmp_path / "a.txz")
    file = {
        "url": archive.as_uri(),
        "name": archive.name,
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "version": {"nccl": "2.7.8", "cudnn": "7.6.5.32"}[name],
    }
    options = {
        "versions_chosen": {name: file, "cuda": {"version": "9.2", "source": "local_rpm"}},
        "__cuda_dir": str(tmp_path / "cuda-9.2"),
        "cuda_store_dir": str(tmp_path / "store"),
        "mxcluster_cache_dir": str(tmp_path / "cache"),
        "mxcluster_home": str(tmp_path),
    }
    looked = "cuda : Report the planned installation of the library"
    told = play(role(name), "--check", **options)
    assert not told["refused"] and file["version"] in told[looked]["msg"], told
    told = play(role(name), **options)
    mark = tmp_path / "cuda-9.2" / (".mxcluster-" + name)
    assert not told["refused"] and mark.read_text().strip() == file["version"], told
    assert list((tmp_path / "cuda-9.2" / "lib64").glob("lib%s.so.*" % name))
    assert not (tmp_path / "cache" / "cuda").exists()
    told = play(role(name), **options)
    assert not any(result.get("changed") for task, result in told.items() if task != "refused")
