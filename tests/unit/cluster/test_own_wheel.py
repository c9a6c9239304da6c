"""The user's own build of MXNet (mxnet_wheel): what the controller reads, and what it refuses."""

import functools
import hashlib
import os
import struct
import zipfile

import pytest

from mxcluster.cluster import own_wheel, pairs, version_table, versions, wheel_library
from mxcluster.errors import BadInput
from mxcluster.model.software import OwnWheel
from tests import own_wheels
from tests.own_wheels import PLAIN, WITH_KVSTORE

CHOICE = {
    "cuda_version": "",
    "mxnet_version": "1.9.1",
    "mxnet_build": "openblas",
    "gpu_required": False,
    "cuda_source": "",
    "cudnn_version": "",
    "driver_install": "auto",
    "nvidia_mirror": "",
    "nvidia_sha256": {},
    "nvidia_keys": [],
}
NODE = {
    "system": "Debian",
    "system_version": "12.5",
    "architecture": "x86_64",
    "family": "Debian",
    "python": "3.11",
    "gpus": [],
    "driver": None,
    "driver_installed": None,
    "own_system": True,
    "missing": [],
}
V100 = "1db4"  # compute capability 7.0


@pytest.fixture
def make(tmp_path):
    """Return a function that makes a wheel with a libmxnet.so from C source."""
    return functools.partial(own_wheels.make, tmp_path)


def own(file=PLAIN, **fields):
    name, version = file.split("-")[:2]
    pin = "%s==%s" % (name.replace("_", "-"), version)
    given = {"file": file, "pin": pin, "sha256": "a" * 64, "needed": ["libgomp.so.1"], "sass": []}
    return OwnWheel(**dict(given, **fields))


def decide(wheel, choice=None, **node):
    given = dict(CHOICE, wheel=wheel.encode(), **(choice or {}))
    return versions.read("beta", given, dict(NODE, **node))


def test_a_wheel_is_read_and_kept(make, tmp_path):
    path, store = make(needed=["libgomp.so.1"]), tmp_path / "store"
    found = own_wheel.read(path, str(tmp_path))
    with open(path, "rb") as stream:
        digest = hashlib.sha256(stream.read()).hexdigest()
    assert found == own(sha256=digest)
    store.mkdir()
    for _ in range(2):
        own_wheel.keep(path, found, str(store))
        assert os.listdir(str(store)) == [PLAIN]
    with open(path, "ab") as stream:
        stream.write(b"more")
    (store / PLAIN).unlink()
    with pytest.raises(BadInput, match="has changed since the start of this run"):
        own_wheel.keep(path, found, str(store))
    assert os.listdir(str(store)) == []


@pytest.mark.parametrize(
    "name, source, words",
    [
        (PLAIN, "int nothing(void) { return 0; }", "has no distributed kv-store.*USE_DIST_KVSTORE"),
        ("mine.whl", WITH_KVSTORE, "is not the name of a wheel"),
        ("numpy-1.9.1-py3-none-any.whl", WITH_KVSTORE, "is a wheel of 'numpy', and not of MXNet"),
    ],
)
def test_another_file_is_refused(make, tmp_path, name, source, words):
    with pytest.raises(BadInput, match="mxnet_wheel=.*" + words):
        own_wheel.read(make(name, source), str(tmp_path))


def test_a_damaged_wheel_is_refused(make, tmp_path):
    path = make()
    os.truncate(path, 300)
    with pytest.raises(BadInput, match="is no complete wheel of MXNet .*build or copy the file"):
        own_wheel.read(path, str(tmp_path))
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("mxnet/__init__.py", "")
    with pytest.raises(BadInput, match="no complete wheel of MXNet .the file lacks mxnet/libmxnet"):
        own_wheel.read(path, str(tmp_path))
    with pytest.raises(BadInput, match="cannot read mxnet_wheel=.*No such file"):
        own_wheel.read(str(tmp_path / "none" / PLAIN), str(tmp_path))


FATBIN = struct.pack("<I", wheel_library.FATBIN)
ELF = b"\x7fELF\x02\x01"


@pytest.mark.parametrize(
    "image",
    [ELF + bytes(58), ELF + bytes(34) + b"\xff" * 24, b""],
    ids=["no section", "far sections", "empty"],
)
def test_a_wheel_with_a_damaged_library_is_refused(tmp_path, image):
    path = str(tmp_path / PLAIN)
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("mxnet/libmxnet.so", image)
    with pytest.raises(BadInput, match="no complete wheel of MXNet .*build or copy the file"):
        own_wheel.read(path, str(tmp_path))


def test_a_wheel_with_damaged_compression_is_refused(tmp_path):
    path = tmp_path / PLAIN
    with zipfile.ZipFile(str(path), "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("mxnet/libmxnet.so", ELF * 1000)
    content = path.read_bytes()
    path.write_bytes(content[:47] + b"\xff" * 8 + content[55:])
    with pytest.raises(BadInput, match="no complete wheel of MXNet .*build or copy the file"):
        own_wheel.read(str(path), str(tmp_path))


@pytest.mark.parametrize(
    "code", [FATBIN + bytes(12), FATBIN + struct.pack("<HHQ", 1, 16, 64) + bytes(64)]
)
def test_damaged_code_for_gpus_has_an_end(monkeypatch, code):
    section = (".nv_fatbin", 1, 0, 0, len(code), 0)
    monkeypatch.setattr(wheel_library, "sections", lambda image: [section])
    with pytest.raises(ValueError, match="the code for GPUs is damaged"):
        wheel_library.fat_binaries(code)


def test_a_node_gets_the_wheel_in_place_of_the_tables():
    stock = versions.read("beta", CHOICE, NODE).environment
    found = decide(own())
    assert found.wheel == PLAIN + " (sha256 %s)" % ("a" * 64)
    assert found.environment.name == "MXNet 1.9.1 for CPUs only from " + found.wheel
    build, before = found.environment.build_for("3.11"), stock.build_for("3.11")
    assert build.wheels == ["mxnet==1.9.1+mine", *before.wheels[1:]] and build.pip == before.pip
    assert found.environment.hashes["mxnet==1.9.1+mine"] == ["a" * 64]
    assert pairs.environment("1.9.1", "cpu") == stock, "the tables have kept the own wheel"
    assert "1.2.1" in version_table.table().mxnet


@pytest.mark.parametrize(
    "wheel, choice, node, words",
    [
        (own(), {"mxnet_version": "1.6.0"}, {}, "contains MXNet 1.9.1.mine, but mxnet_version is"),
        (
            own("mxnet-1.9.1-cp38-cp38-linux_x86_64.whl"),
            {},
            {},
            "does not run on Python 3.11, only on 3.8. mxnet_wheel names mxnet-1.9.1-cp38",
        ),
        (own("mxnet-1.9.1-cp35-cp35m-linux_x86_64.whl"), {}, {}, "fits no Python of MXNet 1.9.1"),
        (own("mxnet-1.9.1-py3-none-win_amd64.whl"), {}, {}, "fits no Python of MXNet 1.9.1"),
        (
            own(needed=["libcudart.so.10.2"], sass=["7.0"]),
            {},
            {},
            "is built for CUDA 10.2, but this node trains on its CPU",
        ),
        (
            own(),
            {"cuda_version": "10.2"},
            {"gpus": [V100], "driver": "470.1"},
            "has no code for GPUs, but this node has a GPU and cuda_version is 10.2",
        ),
        (
            own(needed=["libcudart.so.10.1"], sass=["7.0"]),
            {"cuda_version": "10.2"},
            {"gpus": [V100], "driver": "470.1"},
            "is built for CUDA 10.1, but cuda_version is 10.2",
        ),
        (
            own(needed=["libcudart.so.10.2"], sass=["5.0"]),
            {"cuda_version": "10.2"},
            {"gpus": [V100], "driver": "470.1"},
            "has no code for the GPU 1db4",
        ),
    ],
)
def test_a_wheel_that_does_not_fit_is_refused(wheel, choice, node, words):
    with pytest.raises(BadInput) as refusal:
        decide(wheel, choice, **node)
    text = str(refusal.value)
    assert text.startswith("beta: ") and words.replace(".mine", "+mine") in text, text
    assert 'set mxnet_version: "1.' not in text, "no other MXNet cures the user's own build"


def test_a_pair_that_no_table_has_works():
    """MXNet 1.2.1 has no wheel for CUDA 10.0, but a site can build one."""
    wheel = own(
        "mxnet_cu100-1.2.1-py3-none-linux_x86_64.whl",
        needed=["libcudart.so.10.0", "libcudnn.so.7"],
        sass=["7.0"],
    )
    choice = {"mxnet_version": "1.2.1", "cuda_version": "10.0"}
    found = decide(wheel, choice, gpus=[V100], driver="470.1", python="3.7")
    assert found.environment.build_for("3.7").wheels[0] == "mxnet-cu100==1.2.1"
    assert found.cuda.version == "10.0" and found.cudnn.version.startswith("7.")
    assert found.installed.sass == ["7.0"]


def test_all_cudas_of_the_line_11_have_one_library():
    wheel = own(needed=["libcudart.so.11.0"], sass=["7.0"])
    own_wheel.check_cuda(wheel, "11.2")
    with pytest.raises(BadInput, match="built for CUDA 11.0, but cuda_version is 10.2"):
        own_wheel.check_cuda(wheel, "10.2")
