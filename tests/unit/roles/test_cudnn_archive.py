"""The role cudnn finds and unpacks archives: symlinks stay, half an installation is none."""

import io
import os
import pathlib
import stat
import subprocess
import tarfile

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROLE = pathlib.Path(__file__).resolve().parents[3] / "roles" / "cudnn"
HEADER = "#define CUDNN_MAJOR %s\n#define CUDNN_MINOR %s\n#define CUDNN_PATCHLEVEL %s\n"


def pack(path, version="7.6.5"):
    """An archive of NVIDIA's layout, whose files only its owner can read."""
    with tarfile.open(str(path), "w:gz") as archive:

        def add(name, content=b"", link=None):
            member = tarfile.TarInfo("cuda/" + name)
            member.uid, member.mode = 10143, 0o600
            if link:
                member.type, member.linkname = tarfile.SYMTYPE, link
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))

        add("include/cudnn.h", (HEADER % tuple(version.split("."))).encode())
        add("NVIDIA_SLA_cuDNN_Support.txt", b"terms")
        add("lib64/libcudnn.so", link="libcudnn.so.7")
        add("lib64/libcudnn.so.7", link="libcudnn.so." + version)
        add("lib64/libcudnn.so." + version, os.urandom(1 << 16) + b"library " + version.encode())
        add("lib64/libcudnn_static.a", b"archive")
    return path


class Role:
    """Carries out the role's two commands on a folder; `version` is the wanted one."""

    def __init__(self, folder, version="7.6.5.32"):
        self.folder, self.version = folder, version

    def _variables(self, **more):
        variables = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
        versions = {"cuda": {"version": "9.2"}, "cudnn": {"version": self.version}}
        return dict(variables, __cudnn_dir=str(self.folder), versions_chosen=versions, **more)

    def _run(self, path, name, **more):
        found = yaml.safe_load((ROLE / "tasks" / path).read_text())[0]["block"]
        command = next(task for task in found if task["name"] == name)["ansible.builtin.command"]
        templar = Templar(DataLoader(), variables=self._variables(**more))
        return subprocess.run(
            templar.template(command["argv"]), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def look(self):
        """(whether all is there, the version that was found)."""
        told = self._run("main.yml", "Check the installed cuDNN version on the node")
        looked = {"rc": told.returncode, "stdout_lines": told.stdout.decode().splitlines()}
        templar = Templar(DataLoader(), variables=self._variables(__cudnn_looked=looked))
        found = templar.template("{{ __cudnn_found }}")
        return templar.template("{{ __cudnn_done | bool }}"), found

    def unpack(self, archive):
        """(exit status, stderr)."""
        done = self._run(
            "install.yml",
            "Install the files of the cuDNN archive in the CUDA folder",
            __cudnn_archive=str(archive),
        )
        return done.returncode, done.stderr.decode()


@pytest.fixture
def cudnn(tmp_path):
    """The role on a CUDA folder whose lib64 is a symlink, as NVIDIA's packages make it."""
    folder = tmp_path / "cuda-9.2"
    (folder / "targets" / "x86_64-linux" / "lib").mkdir(parents=True)
    (folder / "lib64").symlink_to("targets/x86_64-linux/lib")
    return Role(folder)


def test_from_nothing_to_done(cudnn, tmp_path):
    assert cudnn.look() == (False, "none")
    assert cudnn.unpack(pack(tmp_path / "a.tgz")) == (0, "")
    assert cudnn.look() == (True, "7.6.5.32")
    libraries = cudnn.folder / "lib64"
    assert os.readlink(str(libraries)) == "targets/x86_64-linux/lib"
    assert os.readlink(str(libraries / "libcudnn.so.7")) == "libcudnn.so.7.6.5"
    for path in (libraries / "libcudnn.so.7.6.5", cudnn.folder / "include" / "cudnn.h"):
        found = path.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o644, os.getuid())
    names = {".mxcluster-cudnn", "include", "lib64", "targets"}
    assert set(os.listdir(str(cudnn.folder))) == names


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
    code, said = cudnn.unpack(path)
    assert code == 1 and "%s is damaged" % path in said and cudnn.look()[0] is True


def test_another_version_than_was_asked_for_changes_nothing(cudnn, tmp_path):
    archive = pack(tmp_path / "a.tgz")
    code, said = Role(cudnn.folder, "7.3.1.20").unpack(archive)
    assert code == 1 and "holds another cuDNN than 7.3.1.20" in said
    assert cudnn.look() == (False, "none") and os.listdir(str(cudnn.folder / "lib64")) == []


def test_an_unpacking_that_was_cut_off_leaves_no_mark(cudnn, tmp_path):
    archive = pack(tmp_path / "a.tgz")
    cudnn.unpack(archive)
    (cudnn.folder / "lib64").unlink()
    (cudnn.folder / "lib64").write_text("")  # tar cannot unpack here
    assert cudnn.unpack(archive)[0] != 0
    assert not (cudnn.folder / ".mxcluster-cudnn").exists() and cudnn.look()[0] is False
