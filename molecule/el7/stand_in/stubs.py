"""Stub libraries with the names and symbols of CUDA's, so that MXNet's GPU wheel can be imported.

MXNet then works on the CPU. No function computes: each reports that there is no device, or fails.
symbols.txt contains the symbols that libmxnet.so of the wheels mxnet-cu92 and mxnet-cu90
1.2.1.post1 imports; `python stubs.py symbols <libmxnet.so>...` prints it.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
NO_DEVICE = 38  # cudaErrorNoDevice; for the other libraries any non-zero status is a failure
BODIES = {
    "cudaGetDeviceCount": "int cudaGetDeviceCount(int *count) { *count = 0; return %d; }"
    % NO_DEVICE,
    "cudaGetErrorString": 'const char *cudaGetErrorString(int e) { return "no CUDA-capable device '
    '(a stub)"; }',
    "__cudaRegisterFatBinary": "void **__cudaRegisterFatBinary(void *b) { static void *handle; "
    "return &handle; }",
}
# Libraries without symbols in these wheels.
OTHERS = ("cusparse", "nvrtc", "nvrtc-builtins", "nvToolsExt")


def symbols(*libraries):
    """Return {library without .so: sorted names} that libmxnet.so files import from CUDA."""
    found = {}
    for library in libraries:
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", library], stdout=subprocess.PIPE, check=True
        ).stdout.decode()
        for name, source in re.findall(r" U (\w+)@(lib\w+)\.so\.9\.\d\n", listed):
            found.setdefault(source, set()).add(name)
    return {source: sorted(names) for source, names in sorted(found.items())}


def listed():
    """Return the content of symbols.txt."""
    lines = (HERE / "symbols.txt").read_text().splitlines()
    return {
        source: names.split()
        for source, names in (line.split(": ") for line in lines if not line.startswith("#"))
    }


def make(folder, version, release):
    """Make the libraries of a CUDA, lib*.so.<release> files and their links; return their names.

    The names come without .so.
    """
    folder.mkdir(parents=True)
    wanted = dict(
        listed(), **{"lib" + name: ["stub_of_" + name.replace("-", "_")] for name in OTHERS}
    )
    for library, names in wanted.items():
        soname = "%s.so.%s" % (library, "1" if library == "libnvToolsExt" else version)
        source = "".join(
            BODIES.get(name, "int %s() { return %d; }" % (name, NO_DEVICE)) + "\n" for name in names
        )
        version_node = soname.replace("-", "_")  # the linker accepts no hyphen here
        (folder / "versions").write_text("%s { global: *; };\n" % version_node)
        linker = "-Wl,-soname,%s,--version-script,%s" % (soname, folder / "versions")
        subprocess.run(
            [
                "gcc",
                "-shared",
                "-fPIC",
                "-w",
                linker,
                "-x",
                "c",
                "-",
                "-o",
                folder / ("%s.so.%s" % (library, release)),
            ],
            input=source.encode(),
            check=True,
        )
        (folder / soname).symlink_to("%s.so.%s" % (library, release))
        (folder / (library + ".so")).symlink_to(soname)
    (folder / "versions").unlink()
    return sorted(wanted)


if __name__ == "__main__":
    for source, names in symbols(*sys.argv[2:]).items():
        print("%s: %s" % (source, " ".join(names)))
