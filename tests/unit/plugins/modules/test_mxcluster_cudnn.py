"""mxcluster_cudnn under the Pythons of nodes: links stay links, and half an installation is none."""
import io
import os
import stat
import sys
import tarfile

import pytest

from tests import ansible_modules
from tests.training.environments import find_python

PYTHONS = {"2.7": find_python("2.7"), "3.6": find_python("3.6"), "controller": sys.executable}
HEADER = "#define CUDNN_MAJOR %s\n#define CUDNN_MINOR %s\n#define CUDNN_PATCHLEVEL %s\n"


def pack(path, version="7.6.5", header="cudnn.h"):
    """An archive of NVIDIA's layout."""
    with tarfile.open(str(path), "w:gz") as archive:
        def add(name, content=b"", link=None):
            member = tarfile.TarInfo("cuda/" + name)
            member.uid, member.mode = 10143, 0o600
            if link:
                member.type, member.linkname = tarfile.SYMTYPE, link
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        add("include/" + header, (HEADER % tuple(version.split("."))).encode())
        add("NVIDIA_SLA_cuDNN_Support.txt", b"terms")
        add("lib64/libcudnn.so", link="libcudnn.so.7")
        add("lib64/libcudnn.so.7", link="libcudnn.so." + version)
        add("lib64/libcudnn.so." + version, b"library " + version.encode())
        add("lib64/libcudnn_static.a", b"archive")
    return path


@pytest.fixture(params=sorted(PYTHONS))
def cudnn(request, tmp_path):
    folder = tmp_path / "cuda-9.2"
    folder.mkdir()

    def run(version="7.6.5.32", **options):
        return ansible_modules.run("mxcluster_cudnn", tmp_path, under=PYTHONS[request.param], path=str(folder),
                                   version=version, **options)
    run.folder = folder
    return run


def test_from_nothing_to_done(cudnn, tmp_path):
    archive = str(pack(tmp_path / "a.tgz"))
    assert cudnn()["found"] is None
    assert cudnn(archive=archive, check=True)["changed"] and os.listdir(str(cudnn.folder)) == []
    answer = cudnn(archive=archive)
    assert answer["changed"] and answer["done"] and answer["found"] == "7.6.5"
    libraries = cudnn.folder / "lib64"
    assert os.readlink(str(libraries / "libcudnn.so.7")) == "libcudnn.so.7.6.5"
    for path in (libraries / "libcudnn.so.7.6.5", cudnn.folder / "include" / "cudnn.h"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert sorted(os.listdir(str(cudnn.folder))) == ["include", "lib64"]
    assert not cudnn(archive=archive)["changed"]


def test_another_version_takes_its_place(cudnn, tmp_path):
    cudnn("7.1.4", archive=str(pack(tmp_path / "old.tgz", "7.1.4")))
    answer = cudnn(archive=str(pack(tmp_path / "new.tgz")))
    assert answer["changed"] and answer["found"] == "7.6.5"
    assert os.path.basename(os.path.realpath(str(cudnn.folder / "lib64" / "libcudnn.so"))) == "libcudnn.so.7.6.5"


def test_what_was_half_made_is_made_again(cudnn, tmp_path):
    archive = str(pack(tmp_path / "a.tgz"))
    cudnn(archive=archive)
    (cudnn.folder / "lib64" / "libcudnn.so.7").unlink()  # what `cp` without -P makes of it
    (cudnn.folder / "lib64" / "libcudnn.so.7").write_bytes(b"library")
    assert not cudnn()["done"]
    assert cudnn(archive=archive)["done"]


@pytest.mark.parametrize("harm, says", [(lambda content: content[:200], "not a whole archive"),
                                        (lambda content: b"<html>not found</html>", "not a whole archive")])
def test_what_is_no_archive_changes_nothing(cudnn, tmp_path, harm, says):
    path = pack(tmp_path / "a.tgz")
    path.write_bytes(harm(path.read_bytes()))
    answer = cudnn(archive=str(path))
    assert answer["failed"] and says in answer["msg"] and os.listdir(str(cudnn.folder)) == []


def test_another_version_than_was_asked_for(cudnn, tmp_path):
    answer = cudnn("7.3.1.20", archive=str(pack(tmp_path / "a.tgz")))
    assert answer["failed"] and "holds cuDNN 7.6.5, not 7.3.1.20" in answer["msg"]
    assert os.listdir(str(cudnn.folder)) == []


def test_cudnn_8_has_its_version_elsewhere(cudnn, tmp_path):
    path = pack(tmp_path / "a.tgz", "7.6.5", "cudnn_version.h")
    assert cudnn(archive=str(path))["found"] == "7.6.5"
