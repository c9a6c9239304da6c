"""Tasks of the roles cuda and cudnn on this machine, with a program that answers as rpm does."""

import hashlib
import os
import sys

import pytest

from tests import needs
from tests.often import seldom
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
    results = play(role("cuda", "ask_rpms.yml") + [show], "--check", versions_chosen=VERSIONS)
    assert results["show"]["msg"] == ["cuda-cublas-9-2-9.2.148.1"], results


# Answers as yum 3.4.3 on EL 7, where `-q check-update` prints nothing.
YUM = """#!/bin/sh
case "$*" in
*unreachable*) echo "http://site/repodata/repomd.xml: [Errno 12] Timeout" >&2; exit 1 ;;
*" -q "* | "-q "*) ;;
*) printf '%s\\n' "Loaded plugins: fastestmirror" "" \\
    "cuda-cudart-9-2.x86_64  9.2.148.1-1  mxcluster-cuda-9-2-1" \\
    cuda-misc-headers-long-name-9-2.x86_64 \\
    "                        9.2.148.1-1  mxcluster-cuda-9-2-1" ;;
esac
exit 100
"""


@pytest.fixture
def yum(rpm, tmp_path):
    """Put a yum 3 into the PATH of the tasks; return CUDA's repository file."""
    rpm("")
    (tmp_path / "bin" / "yum").write_text(YUM)
    (tmp_path / "bin" / "yum").chmod(0o755)
    (tmp_path / "cuda.repo").touch()
    return str(tmp_path / "cuda.repo")


def test_the_missed_packages_of_a_patch_are_found(play, yum):
    show = {"name": "show", "ansible.builtin.debug": {"msg": "{{ [__cuda_updates.rc, found] }}"}}
    show["vars"] = {"found": "{{ __cuda_updates.stdout_lines | mxcluster_updates }}"}
    tasks = role("cuda", "updates.yml") + [show]
    options = {"versions_chosen": VERSIONS, "__cuda_repo_file": yum}
    results = play(tasks, "--check", **options)
    names = ["cuda-cudart-9-2.x86_64", "cuda-misc-headers-long-name-9-2.x86_64"]
    assert results["show"]["msg"] == [100, names], results
    results = play(tasks, **dict(options, __cuda_repo_file=yum + ".missing"))
    assert results["show"]["msg"] == [0, []], "a foreign CUDA has no repositories to compare"


def test_a_repository_that_cannot_be_compared_is_named(play, yum):
    """The installation fails. A complete CUDA gets a warning: the node may be offline."""
    options = {"versions_chosen": VERSIONS, "__cuda_repo_file": yum}
    options["__cuda_repositories"] = ["unreachable"]
    refused = play(role("cuda", "patch.yml"), **options)["refused"]
    shown = {"name": "show", "ansible.builtin.debug": {"msg": "{{ __cuda_unread }}"}}
    warning = play(role("cuda", "updates.yml") + [shown], **options)["show"]["msg"]
    for words in (refused, warning):
        assert "yum could not read the repositories unreachable of CUDA" in words, words
        assert "[Errno 12] Timeout" in words and "Then run provision.yml again" in words, words


def test_an_unsigned_rpm_is_refused_by_name_before_anything_is_installed(play, rpm):
    rpm("digests OK")
    options = {"versions_chosen": VERSIONS, "__cuda_lacking": [], "mxcluster_home": "/nowhere"}
    results = play(role("cuda", "local_rpm.yml"), **options)
    assert "/nowhere/cache/cuda/a.rpm has no valid signature of NVIDIA" in str(results), results
    assert "rpm -K says: /nowhere/cache/cuda/a.rpm: digests OK" in str(results), results
    assert "cuda : Install NVIDIA's local RPM repositories on the node" not in results


def test_files_come_to_a_folder_that_is_made(play, tmp_path):
    (tmp_path / "there.rpm").write_text("content")
    digest = hashlib.sha256(b"content").hexdigest()
    file = {"url": (tmp_path / "there.rpm").as_uri(), "name": "a.rpm", "sha256": digest}
    options = {
        "cuda_bring": [file],
        "cuda_store_dir": str(tmp_path / "store"),
        "mxcluster_cache_dir": str(tmp_path / "cache"),
    }
    results = play(role("cuda", "bring.yml"), **options)
    assert not results["refused"] and (tmp_path / "cache/cuda/a.rpm").read_text() == "content"
    results = play(role("cuda", "bring.yml"), **options)
    assert not any(result["changed"] for result in results.values() if "changed" in result)


@needs.root
@pytest.mark.parametrize("name", [seldom("nccl"), "cudnn"])
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
    looked = "cuda : Report the planned installation of the library in check mode"
    results = play(role(name), "--check", **options)
    assert not results["refused"] and file["version"] in results[looked]["msg"], results
    results = play(role(name), **options)
    mark = tmp_path / "cuda-9.2" / (".mxcluster-" + name)
    assert not results["refused"] and mark.read_text().strip() == file["version"], results
    assert list((tmp_path / "cuda-9.2" / "lib64").glob("lib%s.so.*" % name))
    assert not (tmp_path / "cache" / "cuda").exists()
    results = play(role(name), **options)
    assert not any(result.get("changed") for task, result in results.items() if task != "refused")


# Stands in for Python on the nodes. The copy of a file fails if the copy to another node is running
# (alone), or unless both nodes begin their copies (together).
COPIER = """#!/bin/sh
case $* in
*AnsiballZ_copy*)
    case %(how)s in
    alone) mkdir %(folder)s/busy || { touch %(folder)s/failed; exit 9; }; sleep 1 ;;
    together)
        mktemp %(folder)s/begun.XXXXXX >/dev/null
        for try in $(seq 600); do
            [ $(ls %(folder)s | grep -c begun) -ge 2 ] && break
            sleep 0.1
        done
        [ $try -lt 600 ] || { touch %(folder)s/failed; exit 9; } ;;
    esac
    %(python)s "$@"; status=$?
    [ %(how)s = together ] || rmdir %(folder)s/busy
    exit $status ;;
esac
exec %(python)s "$@"
"""
ROLE_COPIES = {
    "cuda": "cuda : Copy NVIDIA's installation files to the node",
    "mxnet": "mxnet : Copy the archive of wheels to the node",
}


@pytest.mark.parametrize(
    "name, copies, how",
    [
        ("cuda", 1, "alone"),
        seldom("cuda", 0, "together"),
        seldom("mxnet", 1, "alone"),
        ("mxnet", 0, "together"),
    ],
)
def test_large_files_go_to_a_given_number_of_nodes_at_a_time(
    play, tmp_path, monkeypatch, name, copies, how
):
    """The hosts one and two get the same file, with mxcluster_copies=1 one after the other."""
    monkeypatch.setenv("ANSIBLE_PIPELINING", "False")  # the name of the module is an argument
    copier = tmp_path / "python"
    copier.write_text(COPIER % {"how": how, "folder": tmp_path, "python": sys.executable})
    copier.chmod(0o755)
    (tmp_path / "a.file").write_text("content")
    file = {"url": (tmp_path / "a.file").as_uri(), "name": "a.file", "sha256": ""}
    results = play(
        role(name, {"cuda": "bring.yml", "mxnet": "build.yml"}[name]),
        hosts="all",
        ansible_python_interpreter=str(copier),
        mxcluster_copies=copies,
        mxcluster_cache_dir="%s/cache-{{ inventory_hostname }}" % tmp_path,
        # of the role cuda
        cuda_bring=[file],
        cuda_store_dir=str(tmp_path / "store"),
        # of the role mxnet; the module mxcluster_env then refuses the impossible environment
        __mxnet_archive=str(tmp_path / "a.file"),
        __mxnet_here=False,
        __mxnet_carry_dir=str(tmp_path / "carry"),
        __mxnet_environment={"path": "/nowhere"},
    )
    assert results[ROLE_COPIES[name]]["changed"] and not (tmp_path / "failed").exists(), results
    assert bool(results["refused"]) == (name == "mxnet"), results
    assert name == "mxnet" or (tmp_path / "cache-two/cuda/a.file").read_text() == "content"
