#!/usr/bin/env bash
# Add Intel MPI's launcher to the root folder $1 of a node's image, in /opt/intel/mpi.
#
# The launcher is part of the runtime that Intel offers as a wheel. Only its programs are taken: the
# agents that it starts use no MPI library.
set -euo pipefail

version=2021.19.0
digest=708b4336c9d303a3d807b58054c502ed4f716dfb074dfa48904180b46d14bb40
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

echo "impi-rt==$version --hash=sha256:$digest" >"$folder/wanted.txt"
"${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps \
    --only-binary :all: --require-hashes --dest "$folder" -r "$folder/wanted.txt"
python3 - "$folder" "$1/opt/intel/mpi" <<'END'
import glob
import os
import sys
import zipfile

folder, into = sys.argv[1:]
names = ("mpirun", "mpiexec.hydra", "hydra_bstrap_proxy", "hydra_pmi_proxy")
os.makedirs(into + "/bin")
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    for member in wheel.namelist():
        name = os.path.basename(member)
        if member.endswith("/data/bin/" + name) and name in names:
            with open(os.path.join(into, "bin", name), "wb") as stream:
                stream.write(wheel.read(member))
            os.chmod(stream.name, 0o755)
            names = tuple(other for other in names if other != name)
sys.exit("the wheel has no %s" % ", ".join(names) if names else 0)
END
