"""The tasks that find and unpack cuDNN and NCCL keep symlinks and repair partial installations."""

import io
import os
import pathlib
import shutil
import stat
import subprocess
import tarfile

import pytest
import yaml

from mxcluster.cluster import install_failures
from tests import needs
from tests.templates import templated

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
HEADER = "#define CUDNN_MAJOR %s\n#define CUDNN_MINOR %s\n#define CUDNN_PATCHLEVEL %s\n"


def add(archive, name, content=b"", link=None):
    """Add a file that only its owner can read, or a symlink."""
    member = tarfile.TarInfo(name)
    member.uid, member.mode = 10143, 0o600
    if link:
        member.type, member.linkname = tarfile.SYMTYPE, link
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def pack(path, version="7.6.5"):
    """Write an archive of cuDNN with NVIDIA's layout to `path`, and return the path."""
    with tarfile.open(str(path), "w:gz") as archive:
        header = HEADER % tuple(version.split("."))
        add(archive, "cuda/include/cudnn.h", header.encode())
        add(archive, "cuda/NVIDIA_SLA_cuDNN_Support.txt", b"terms")
        add(archive, "cuda/lib64/libcudnn.so", link="libcudnn.so.7")
        add(archive, "cuda/lib64/libcudnn.so.7", link="libcudnn.so." + version)
        library = os.urandom(1 << 16) + b"library " + version.encode()
        add(archive, "cuda/lib64/libcudnn.so." + version, library)
        add(archive, "cuda/lib64/libcudnn_static.a", b"archive")
    return path


def pack_nccl(path):
    """Write an archive of NCCL 2.7.8 with NVIDIA's layout to `path`, and return the path."""
    with tarfile.open(str(path), "w:xz") as archive:
        top = "nccl_2.7.8-1+cuda10.1_x86_64/"
        add(archive, top + "LICENSE.txt", b"terms")
        add(archive, top + "include/nccl.h", b"header")
        add(archive, top + "lib/libnccl.so", link="libnccl.so.2")
        add(archive, top + "lib/libnccl.so.2", link="libnccl.so.2.7.8")
        add(archive, top + "lib/libnccl.so.2.7.8", b"library")
        add(archive, top + "lib/libnccl_static.a", b"archive")
        add(archive, top + "lib/pkgconfig/nccl.pc", b"words")
    return path


class Role:
    """Runs the two commands of the role `name` on a folder; `version` is the chosen version."""

    def __init__(self, folder, version="7.6.5.32", name="cudnn"):
        self.folder, self.version, self.name = folder, version, name

    def _variables(self, archive, **more):
        variables = {}
        for role in ("cuda", self.name):
            variables.update(yaml.safe_load((ROLES / role / "vars" / "main.yml").read_text()))
        chosen = {
            "cuda": {"version": "9.2"},
            self.name: {"version": self.version, "name": archive.name},
        }
        variables.update(
            __cuda_dir=str(self.folder),
            versions_chosen=chosen,
            mxcluster_cache_dir=str(archive.parent.parent),
            cuda_library=variables["__%s_library" % self.name],
        )
        return dict(variables, **more)

    def _run(self, path, name, archive, before=()):
        found = yaml.safe_load((ROLES / "cuda" / "tasks" / path).read_text())
        found = found[0].get("block", found)
        command = next(task for task in found if task["name"] == name)["ansible.builtin.command"]
        return subprocess.run(
            [*before, *templated(command["argv"], self._variables(archive))], capture_output=True
        )

    def look(self):
        """Return (True if the library is complete, the version that the command found)."""
        archive = pathlib.Path("/nowhere/cuda/a.tgz")
        done = self._run(
            "library.yml", "Check the installed version of the library on the node", archive
        )
        looked = {"rc": done.returncode, "stdout_lines": done.stdout.decode().splitlines()}
        variables = self._variables(archive, __cuda_library_looked=looked)
        found = templated("{{ __cuda_library_found }}", variables)
        return templated("{{ __cuda_library_done | bool }}", variables), found

    def unpack(self, archive, before=()):
        """Unpack an archive in a folder named cuda, and return (exit status, stderr).

        `before` are the words of a program that runs the command.
        """
        name = "Install the files of the library in the CUDA folder"
        done = self._run("library_install.yml", name, archive, before)
        return done.returncode, done.stderr.decode()


@pytest.fixture
def tmp_path(tmp_path):
    """The folder of archives on a node."""
    (tmp_path / "cuda").mkdir()
    return tmp_path / "cuda"


@pytest.fixture
def cudnn(tmp_path):
    """The role on a CUDA folder whose lib64 is a symlink, as NVIDIA's packages make it."""
    folder = tmp_path / "cuda-9.2"
    (folder / "targets" / "x86_64-linux" / "lib").mkdir(parents=True)
    (folder / "lib64").symlink_to("targets/x86_64-linux/lib")
    return Role(folder)


def test_another_version_takes_its_place(cudnn, tmp_path):
    Role(cudnn.folder, "7.1.4").unpack(pack(tmp_path / "old.tgz", "7.1.4"))
    assert cudnn.look() == (False, "7.1.4")
    assert cudnn.unpack(pack(tmp_path / "new.tgz")) == (0, "")
    assert cudnn.look() == (True, "7.6.5.32")
    library = os.path.realpath(str(cudnn.folder / "lib64" / "libcudnn.so"))
    assert os.path.basename(library) == "libcudnn.so.7.6.5"


@pytest.mark.parametrize("lost", ["lib64/libcudnn.so.7.6.5", "include/cudnn.h", ".mxcluster-cudnn"])
def test_a_missing_part_is_unpacked_again(cudnn, tmp_path, lost):
    archive = pack(tmp_path / "a.tgz")
    cudnn.unpack(archive)
    (cudnn.folder / lost).unlink()
    assert cudnn.look()[0] is False
    assert cudnn.unpack(archive) == (0, "") and cudnn.look()[0] is True


def test_a_file_in_the_place_of_a_symlink_is_replaced(cudnn, tmp_path):
    archive = pack(tmp_path / "a.tgz")
    cudnn.unpack(archive)
    (cudnn.folder / "lib64" / "libcudnn.so.7").unlink()  # what `cp` without -P makes of it
    (cudnn.folder / "lib64" / "libcudnn.so.7").write_bytes(b"library")
    assert cudnn.look()[0] is False
    assert cudnn.unpack(archive) == (0, "") and cudnn.look()[0] is True


@pytest.mark.parametrize(
    "harm", [lambda content: content[:-200], lambda content: b"<html>not found</html>"]
)
def test_what_is_no_archive_changes_nothing(cudnn, tmp_path, harm):
    cudnn.unpack(pack(tmp_path / "a.tgz"))
    path = pack(tmp_path / "b.tgz")
    path.write_bytes(harm(path.read_bytes()))
    code, errors = cudnn.unpack(path)
    assert code == 1 and "%s is damaged" % path in errors and cudnn.look()[0] is True


def test_another_version_than_was_asked_for_changes_nothing(cudnn, tmp_path):
    archive = pack(tmp_path / "a.tgz")
    code, errors = Role(cudnn.folder, "7.3.1.20").unpack(archive)
    assert code == 1 and "holds another cuDNN than 7.3.1.20" in errors
    assert cudnn.look() == (False, "none") and os.listdir(str(cudnn.folder / "lib64")) == []


def test_an_unpacking_that_was_cut_off_leaves_no_mark(cudnn, tmp_path):
    archive = pack(tmp_path / "a.tgz")
    cudnn.unpack(archive)
    (cudnn.folder / "lib64").unlink()
    (cudnn.folder / "lib64").write_text("")  # tar cannot unpack here
    assert cudnn.unpack(archive)[0] != 0
    assert not (cudnn.folder / ".mxcluster-cudnn").exists() and cudnn.look()[0] is False


@needs.mounts
def test_a_disk_that_fills_up_while_the_library_is_unpacked(cudnn, tmp_path):
    """The library has 64 KiB, and the disk for it 32 KiB. The next run repairs the installation."""
    archive = pack(tmp_path / "a.tgz")
    mount = 'mount -t tmpfs -o size=32k tmpfs "$0" && exec "$@"'
    small = ["unshare", "--mount", "sh", "-c", mount, str(cudnn.folder / "lib64")]
    code, errors = cudnn.unpack(archive, small)
    assert code != 0 and install_failures.is_full({"stderr": errors}), errors
    assert not (cudnn.folder / ".mxcluster-cudnn").exists() and cudnn.look()[0] is False
    assert cudnn.unpack(archive) == (0, "") and cudnn.look()[0] is True


def test_nccl_is_unpacked_beside_the_libraries_of_cuda(cudnn, tmp_path):
    nccl = Role(cudnn.folder, "2.7.8", "nccl")
    assert nccl.look() == (False, "none")
    assert nccl.unpack(pack_nccl(tmp_path / "a.txz")) == (0, "")
    assert nccl.look() == (True, "2.7.8")
    assert sorted(os.listdir(str(cudnn.folder / "lib64"))) == [
        "libnccl.so",
        "libnccl.so.2",
        "libnccl.so.2.7.8",
    ]
    assert os.readlink(str(cudnn.folder / "lib64" / "libnccl.so.2")) == "libnccl.so.2.7.8"
    assert stat.S_IMODE((cudnn.folder / "lib64" / "libnccl.so.2.7.8").stat().st_mode) == 0o644
    code, errors = Role(cudnn.folder, "2.6.4", "nccl").unpack(tmp_path / "a.txz")
    assert code == 1 and "holds another NCCL than 2.6.4" in errors and nccl.look()[0] is True


def test_a_missing_xz_is_named(cudnn, tmp_path, monkeypatch):
    pack_nccl(tmp_path / "a.txz")
    (tmp_path / "bin").mkdir()
    for program in ("sh", "tar", "rm", "chmod"):
        (tmp_path / "bin" / program).symlink_to(shutil.which(program))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    code, errors = Role(cudnn.folder, "2.7.8", "nccl").unpack(tmp_path / "a.txz")
    assert code == 1 and "the program xz, which unpacks NCCL, is missing: install" in errors
