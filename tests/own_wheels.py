"""Wheels of MXNet as a site builds them, with a small libmxnet.so from C source."""

import subprocess
import zipfile

PLAIN = "mxnet-1.9.1+mine-py3-none-linux_x86_64.whl"
WITH_KVSTORE = 'const char *reads(void) { return "DMLC_PS_ROOT_URI"; }'


def make(folder, name=PLAIN, source=WITH_KVSTORE, needed=()):
    """Make the wheel `name` in `folder`, and return its path.

    Args: `needed` the names of the libraries that libmxnet.so needs.
    """
    stubs = []
    for soname in needed:
        stubs.append(str(folder / soname))
        _link("int in_%d(void) { return 0; }" % len(stubs), stubs[-1], "-Wl,-soname," + soname)
    library = str(folder / "libmxnet.so")
    _link(source, library, "-Wl,--no-as-needed", *stubs)
    with zipfile.ZipFile(str(folder / name), "w") as packed:
        packed.write(library, "mxnet/libmxnet.so")
        packed.writestr("mxnet/__init__.py", "")
    return str(folder / name)


def _link(source, target, *more):
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-x", "none"]
    subprocess.run([*command, "-o", target, *more], input=source.encode(), check=True)
