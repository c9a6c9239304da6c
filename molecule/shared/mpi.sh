#!/usr/bin/env bash
# Add MPI engines from wheels to the root folder $1 of a node's image: MPICH in /opt/mpich, and Intel
# MPI's launcher in /opt/intel/mpi.
#
# Of Intel MPI only the launcher is taken: the agents that it starts use no MPI library.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/wanted.txt" <<'END'
impi-rt==2021.19.0 --hash=sha256:708b4336c9d303a3d807b58054c502ed4f716dfb074dfa48904180b46d14bb40
mpich==5.0.2 --hash=sha256:8fed465ebff269ea2ebac179a25de02671ddf8df476e0f115be089015015cfd4
END
"${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps \
    --only-binary :all: --require-hashes --dest "$folder" -r "$folder/wanted.txt"
python3 - "$folder" "$1/opt" <<'END'
import fnmatch
import glob
import os
import sys
import zipfile

folder, opt = sys.argv[1:]
for wheel, into, wanted in (
    ("mpich", "mpich", ("bin/mpirun", "bin/*hydra*", "lib/libmpi.so.*", "lib/mpich/*")),
    ("impi_rt", "intel/mpi", ("bin/mpirun", "bin/mpiexec.hydra", "bin/hydra_*_proxy")),
):
    found = set()
    with zipfile.ZipFile(glob.glob("%s/%s-*.whl" % (folder, wheel))[0]) as packed:
        for member in packed.namelist():
            name = member.partition("/data/")[2]
            pattern = next((one for one in wanted if fnmatch.fnmatchcase(name, one)), None)
            if pattern and not member.endswith("/"):
                found.add(pattern)
                path = os.path.join(opt, into, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as stream:
                    stream.write(packed.read(member))
                os.chmod(path, 0o755)
    if found != set(wanted):
        sys.exit("the wheel %s has no %s" % (wheel, ", ".join(set(wanted) - found)))
END
