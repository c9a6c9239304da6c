# -*- coding: utf-8 -*-
"""Unpack wheels, compare the files of a folder, and explain failures, for mxcluster_env."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import hashlib
import os
import re
import stat
import tarfile
import zlib

# Libraries of CUDA, cuDNN and NCCL, which MXNet's GPU wheels need.
NVIDIA = ["lib" + name for name in ("cublas", "cudart", "cudnn", "cufft", "curand", "cusolver")]
NVIDIA += ["libnccl", "libnvrtc", "libnvToolsExt"]


class Refused(Exception):
    """An error that the user must correct. The text names the problem and the cure."""


def choose_build(builds, version, name, note):
    """Return the item of the option `builds` for Python `version` ('3.11'), or raise Refused.

    Args: `builds` a list of {"python": [version, ...], "wheels", "pip"}; `name` the software and
    `note` an explanation, both for the message of Refused.
    """
    for build in builds:
        if version in build["python"]:
            return build
    known = sorted(
        {known for build in builds for known in build["python"]},
        key=lambda text: int(text.split(".")[1]),
    )
    raise Refused(
        "%s is not available for Python %s, only for Python %s.%s Set mxnet_python on this node to "
        "an interpreter of such a version, or choose another mxnet_version."
        % (name, version, ", ".join(known), note and " " + note)
    )


def requirement(wheel, hashes):
    """Return the line of a requirements file that accepts only the known files of `wheel`.

    Args: `hashes` {wheel: [sha256, ...]}. Raises Refused if `hashes` lacks `wheel`.
    """
    if not hashes.get(wheel):
        raise Refused(
            "mxcluster has no SHA-256 digest of %s: add the digest to "
            "python/mxcluster/cluster/mxnet.yml" % wheel
        )
    return " ".join([wheel] + ["--hash=sha256:" + digest for digest in hashes[wheel]])


def unpack(path, folder, accepted):
    """Extract the wheels of the tar file `path` into `folder`, as files of the current user.

    Root runs pip from a wheel, so root must own the wheels. With extractall, the users named in the
    tar file would own the wheels. For the same reason, the function refuses a file whose content is
    no accepted wheel. Python and pip could run or install such a file.

    Args: `accepted` {sha256: wheel, such as "mxnet==1.9.1"} of all accepted files.

    Returns {wheel: path of its file}. Raises Refused for a file with another sha256, and for a
    missing wheel.
    """
    found = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            if member.isfile():
                content = archive.extractfile(member)
                target = os.path.join(folder, os.path.basename(member.name))
                digest = copied(content, target)
                if digest not in accepted:
                    raise Refused(
                        "%s contains the file %s with the sha256 %s, which is not the digest of a "
                        "wheel of this environment. The module has run nothing of this tar file. "
                        "Run the playbook again, which copies the tar file again"
                        % (path, os.path.basename(member.name), digest)
                    )
                found[accepted[digest]] = target
    missing = sorted(set(accepted.values()) - set(found))
    if missing:
        raise Refused(
            "%s lacks the wheels of %s: run the playbook again, which copies the tar file again"
            % (path, ", ".join(missing))
        )
    return found


def copied(source, path):
    """Copy the open file `source` to the new file `path`. Return the sha256 of the content."""
    digest = hashlib.sha256()
    with open(path, "wb") as target:
        for block in iter(lambda: source.read(1 << 20), b""):
            digest.update(block)
            target.write(block)
    return digest.hexdigest()


def sync(path):
    """Write the file or folder `path` to the disk with fsync, and wait for the end of the write."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync folders.
        if error.errno != errno.EINVAL or not os.path.isdir(path):
            raise
    finally:
        os.close(descriptor)


def contents(folder):
    """Return {relative path: [bytes, CRC-32], or None for a link} of all files below `folder`."""
    found = {}
    for parent, folders, files in os.walk(folder):
        paths = [os.path.join(parent, name) for name in files + folders]
        for path in [path for path in paths if os.path.islink(path) or not os.path.isdir(path)]:
            mark = None
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as source:
                    content = source.read()
                mark = [len(content), zlib.crc32(content) & 0xFFFFFFFF]
            found[os.path.relpath(path, folder)] = mark
    return found


def is_compiled(path):
    """Return True if `path` names a bytecode file in a folder __pycache__.

    Python ignores such a file without its source.
    """
    return os.path.basename(os.path.dirname(path)) == "__pycache__" and path.endswith(".pyc")


def cure_for(last_words):
    """Return the cure (str) for a failed program, as a sentence for the error message.

    If the output names a missing part of the system, the cure is the installation of this part.

    Args: `last_words` the last lines of the program's output (str).
    """
    missing = re.search(r"(lib[\w+]+)\.so[.\d]*: cannot open shared object file", last_words)
    if "No module named 'distutils" in last_words:  # pip of Python 3.6
        return (
            " The node's Python lacks distutils: install this module (Debian, Ubuntu: apt install "
            "python3-distutils), then run provision.yml again."
        )
    if not missing:
        return " Remove the error in the output below, and run the playbook again."
    if missing.group(1) == "libcuda":
        return (
            " The node lacks the library libcuda of NVIDIA's driver: install a driver, then run "
            "provision.yml again."
        )
    if missing.group(1) in NVIDIA:
        return (
            " The linker does not find the library %s of CUDA, cuDNN or NCCL: run `ldconfig` as "
            "root on the node if the file is there. Otherwise remove this CUDA from the node. Then "
            "run provision.yml again." % missing.group(1)
        )
    return (
        " The node lacks the library %s: install this library (CentOS: yum install %s; Debian, "
        "Ubuntu: the package whose name begins with %s), then run provision.yml again."
        % ((missing.group(1),) * 3)
    )
