"""mxcluster_machine under the Pythons of nodes: this machine, and a PCI bus with GPUs."""

import importlib.util
import os
import sys

import pytest

from tests import ansible_modules
from tests.pythons import find_python, python_of

PYTHONS = ["2.7", "3.6", "controller"]


@pytest.mark.slow
@pytest.mark.parametrize("under", PYTHONS)
def test_the_facts_of_this_machine(under, tmp_path):
    answer = ansible_modules.run(
        "mxcluster_machine",
        tmp_path,
        under=python_of(under),
        python=str(find_python("3.6")),
        libraries=["libc.so.6", "libnone.so.1"],
        programs=["sh", "no-such-program"],
    )
    assert answer["python"] == "3.6" and answer["kernel"] == os.uname()[2]
    assert answer["missing_libraries"] == ["libnone.so.1"]
    assert answer["missing_programs"] == ["no-such-program"]
    options = dict(under=python_of(under), python="/no/python")
    assert ansible_modules.run("mxcluster_machine", tmp_path, **options)["python"] is None


@pytest.fixture(scope="module")
def machine():
    spec = importlib.util.spec_from_file_location(
        "machine", str(ansible_modules.MODULES / "mxcluster_machine.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gpus_are_found_by_class_and_vendor(machine, tmp_path):
    """NVIDIA's sound devices and switches, and displays of other vendors, are no GPUs."""
    for slot, (vendor, kind, device) in {
        "0000:3b:00.0": ("0x10de", "0x030200", "0x1db4"),
        "0000:3b:00.1": ("0x10de", "0x040300", "0x10f2"),
        "0000:03:00.0": ("0x102b", "0x030000", "0x0522"),
        "0000:04:00.0": ("0x10de", "0x030000", "0x102d"),
        "0000:05:00.0": ("0x10de", "0x068000", "0x1ac2"),
    }.items():
        (tmp_path / slot).mkdir()
        for name, value in (("vendor", vendor), ("class", kind), ("device", device)):
            (tmp_path / slot / name).write_text(value + "\n")
    assert machine.gpus(str(tmp_path)) == ["102d", "1db4"]
    assert machine.gpus(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    "text, version",
    [
        ("NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 2024\nGCC:", "470.256.02"),
        ("NVIDIA UNIX Open Kernel Module for x86_64  535.104.05  Release Build", "535.104.05"),
        ("", None),
    ],
)
def test_the_loaded_driver(machine, tmp_path, text, version):
    (tmp_path / "version").write_text(text)
    assert machine.loaded_driver(str(tmp_path / "version")) == version


def test_a_library_of_the_interpreters_own_is_not_missing(tmp_path):
    """ldconfig does not list conda's libraries."""
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\nexport LD_LIBRARY_PATH=%s\nexec %s "$@"\n' % (tmp_path, sys.executable)
    )
    python.chmod(0o755)
    mapped = [line.split()[-1] for line in open("/proc/self/maps")]
    library = next(path for path in mapped if "libc.so.6" in path or "/libc-" in path)
    os.symlink(library, str(tmp_path / "libmine.so.1"))
    options = {"python": str(python), "libraries": ["libmine.so.1", "libnone.so.1"]}
    answer = ansible_modules.run("mxcluster_machine", tmp_path, **options)
    assert answer["missing_libraries"] == ["libnone.so.1"]


def test_kernels_are_sorted_by_number_and_need_their_modules(machine, tmp_path):
    for name in ("3.10.0-1160.119.1.el7.x86_64", "3.10.0-957.el7.x86_64", "3.10.0-1160.el7.x86_64"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "modules.order").write_text("")
    (tmp_path / "3.10.0-1200.el7.x86_64").mkdir()  # removed, and dkms has left its folder
    assert machine.kernels(str(tmp_path)) == [
        "3.10.0-957.el7.x86_64",
        "3.10.0-1160.el7.x86_64",
        "3.10.0-1160.119.1.el7.x86_64",
    ]
    assert machine.kernels(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    "older, newer",
    [
        # Updates of a first kernel, whose own numbers are smaller than that of the system's name.
        ("3.10.0-1160.el7.x86_64", "3.10.0-1160.2.2.el7.x86_64"),
        ("3.10.0-957.27.2.el7.x86_64", "3.10.0-1062.el7.x86_64"),
        ("4.18.0-372.el8.x86_64", "4.18.0-372.9.1.el8_6.x86_64"),
    ],
)
def test_the_newest_kernel_is_the_one_that_the_next_boot_starts(machine, tmp_path, older, newer):
    for name in (newer, older):
        (tmp_path / name).mkdir()
        (tmp_path / name / "modules.order").write_text("")
    assert machine.kernels(str(tmp_path)) == [older, newer]


@pytest.mark.parametrize(
    "content, on", [(b"\6\0\0\0\1", True), (b"\6\0\0\0\0", False), (b"", False)]
)
def test_secure_boot_is_the_fifth_byte_of_the_variable(machine, tmp_path, content, on):
    name = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    (tmp_path / name).write_bytes(content)
    assert machine.secure_boot(str(tmp_path)) is on
    assert machine.secure_boot(str(tmp_path / "none")) is False


def test_who_has_a_gpu_open(machine, tmp_path):
    for pid, name, target in (
        (7, "python", "/dev/nvidia0"),
        (8, "nvidia-persiste", "/dev/nvidia0"),
        (9, "bash", "/dev/null"),
        (10, "java", "/dev/nvidia-uvm"),
    ):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "comm").write_text(name + "\n")
        os.symlink(target, str(tmp_path / str(pid) / "fd" / "3"))
    (tmp_path / "self").mkdir()
    (tmp_path / "7" / "fd" / "0").mkdir()  # no link: as a file that is closed during the scan
    assert machine.gpu_users(str(tmp_path)) == ["python (pid 7)", "java (pid 10)"]
