"""NVML, with a library in place of NVIDIA's that the test compiles."""

import pathlib
import subprocess

import pytest

from mxcluster.node import nvml

SOURCE = pathlib.Path(__file__).parent / "fake_nvml.c"
GIB = 2**30


def built(folder, *options):
    """Return the path of the compiled library in `folder`."""
    path = str(folder / nvml.LIBRARY)
    subprocess.run(["gcc", "-shared", "-fPIC", *options, "-o", path, str(SOURCE)], check=True)
    return path


@pytest.fixture(params=["new", "old"])
def library(request, tmp_path):
    """The library of a new driver, and that of a driver before 450."""
    return built(tmp_path, *(["-DOLD"] if request.param == "old" else []))


def test_a_gpu_tells_its_use_and_the_memory_of_its_processes(library):
    found = nvml.Nvml(library).look(0)
    assert found.use == 0.75
    assert found.memory[7] == GIB and found.memory[100019] == GIB + 19 and len(found.memory) == 19
    assert 100001 not in found.memory, "the driver does not know the memory of this process"


def test_a_figure_that_a_gpu_does_not_tell_is_none(library):
    handle = nvml.Nvml(library)
    for number in (1, 2):  # not supported, and above 100 %
        found = handle.look(number)
        assert found.use is None and found.memory[7] == GIB
    for number in (3, 4):  # lost, and absent
        assert handle.look(number) == (None, None)


def test_a_library_without_a_function_tells_nothing():
    handle = object.__new__(nvml.Nvml)
    handle._library, handle._devices = object(), {}
    assert handle.look(0) == (None, None)


def test_a_missing_library_and_a_missing_driver_are_errors(tmp_path, monkeypatch):
    with pytest.raises(OSError):
        nvml.Nvml(str(tmp_path / "absent.so"))
    monkeypatch.setenv("FAKE_INIT", "9")
    with pytest.raises(OSError, match="is the driver loaded"):
        nvml.Nvml(built(tmp_path))
