"""Fetch the libraries of CUDA 11 from PyPI into a folder with the form of a CUDA, without root."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[2]
REQUIREMENTS = PROJECT / "requirements" / "gpu.txt"


def lay_out(packages, folder):
    """Link the files of NVIDIA's packages into `folder`, in the form of a CUDA, and return it.

    Libraries come into lib64, and cuDNN's headers, with its version, into include.

    Args: `packages` the folder into which pip has installed them.
    """
    for part, pattern in (("lib64", "nvidia/*/lib/*.so*"), ("include", "nvidia/cudnn/include/*.h")):
        (folder / part).mkdir(parents=True)
        for path in sorted(packages.glob(pattern)):
            (folder / part / path.name).symlink_to(path)
    return folder


def fetch(home):
    """Fetch the libraries into `home` once, 1.9 GB, and return the folder of CUDA.

    Other requirements have another folder. Raises subprocess.CalledProcessError if pip fails, and
    prints its output.
    """
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    folder, packages = home / ("cuda-" + digest), home / ("packages-" + digest)
    if folder.exists():
        return folder
    for leftover in (packages, home / "draft"):
        shutil.rmtree(str(leftover), ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-cache-dir"]  # the cache in the home would have a second copy
    pip += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--target", str(packages)]
    subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True)
    os.rename(str(lay_out(packages, home / "draft")), str(folder))
    return folder
