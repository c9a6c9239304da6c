"""A wheel is measured by reading its libraries, here ones that gcc makes."""

import struct
import subprocess
import zipfile

import pytest

from mxcluster.cluster import version_table, wheel_library
from tools import gpu_wheels

SOURCE = """
static const char code[] __attribute__((section(".nv_fatbin"), used, aligned(8))) = {%s};
int nothing(void) { return 0; }
"""


def fat_binary(*entries):
    """A fat binary with an entry for each (kind, capability times 10)."""
    inside = b"".join(
        struct.pack("<HHIQIIHHI", kind, 0x101, 64, 8, 0, 0, 0, 0, capability).ljust(72, b"\1")
        for kind, capability in entries
    )
    return struct.pack("<IHHQ", wheel_library.FATBIN, 1, 16, len(inside)) + inside


@pytest.fixture
def wheel(tmp_path):
    """Return a function that makes a wheel with libmxnet.so and a library beside it."""

    def make(code):
        def link(name, source, *needed):
            stubs = []
            for soname in needed:
                stub = tmp_path / soname
                compile_("int in_%d(void) { return 0; }" % len(stubs), stub, soname)
                stubs.append(str(stub))
            compile_(source, tmp_path / name, name, "-Wl,--no-as-needed", *stubs)
            return tmp_path / name

        def compile_(source, target, soname, *more):
            command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-x", "none"]
            command += ["-Wl,-soname," + soname, "-o", str(target), *more]
            subprocess.run(command, input=source.encode(), check=True)

        source = SOURCE % ",".join(str(byte) for byte in code)
        path = tmp_path / "mxnet_cu92-1.2.1.post1-py2.py3-none-manylinux1_x86_64.whl"
        beside = link(
            "libgfortran.so.3", "int f(void) { return 0; }", "libquadmath.so.0", "libm.so.6"
        )
        with zipfile.ZipFile(str(path), "w") as packed:
            packed.write(str(beside), "mxnet/libgfortran.so.3")
            beside.unlink()
            needs = ("libcudart.so.9.2", "libgfortran.so.3", "libc.so.6")
            packed.write(str(link("libmxnet.so", source, *needs)), "mxnet/libmxnet.so")
            packed.writestr("mxnet/libinfo.py", "")
        return path

    return make


@pytest.mark.slow
def test_a_wheel_is_measured(wheel):
    """Few fat binaries for 2.0 are those of a library inside; an entry of kind 1 is PTX."""
    own = fat_binary((2, 30), (2, 70), (1, 70))
    path = wheel(own * 9 + bytes(8) + fat_binary((2, 20), (2, 30)))
    measured = gpu_wheels.measure(str(path))
    assert measured == {
        "needed": ["libcudart.so.9.2", "libquadmath.so.0"],
        "sass": ["3.0", "7.0"],
    }


def test_rows_are_those_of_the_table(tmp_path, capsys, wheel):
    gpu_wheels.main([str(wheel(fat_binary((2, 30))))])
    assert capsys.readouterr().out == (
        "- wheels: [mxnet-cu92==1.2.1.post1]\n"
        "  needed: [libcudart.so.9.2, libquadmath.so.0]\n"
        '  sass: ["3.0"]\n'
    )
    wheel = "mxnet-cu92==1.7.0"  # the only wheel of its row
    with open(version_table.FOLDER + "/gpu_wheels.yml") as stream:
        table = stream.read()
    assert gpu_wheels.rows({wheel: version_table.gpu_wheels()[wheel].encode()}) in table
