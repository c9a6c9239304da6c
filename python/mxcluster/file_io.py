"""Replace whole files, read JSON files of mxcluster, and compute the digests of files."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from typing import Optional, TypeVar, Union

from mxcluster.errors import DAMAGED, BadInput
from mxcluster.model.shapes import Shape, Wrong

T = TypeVar("T")

BLOCK = 1 << 20  # bytes
MOST_FILES = 200000  # of a folder whose space `disk_space` adds up
LEAST_FREE = 100 << 20  # bytes of disk for the results of a job


def replace(path: str, content: Union[str, bytes], mode: int = 0o666) -> None:
    """Write `content` atomically to the file `path`, in place of an earlier file.

    The function writes the draft `path`.part and renames the draft, so that readers see only whole
    files. `mode`: the permissions of the file, before the umask.
    """
    draft = path + ".part"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "wb") as stream:
        stream.write(content if isinstance(content, bytes) else content.encode("utf-8"))
    os.replace(draft, path)


def read_json(path: str, shape: Shape[T], cure: str = "restore or remove this file") -> Optional[T]:
    """Return the content of a JSON file that mxcluster wrote, or None if the file does not exist.

    Raises BadInput with the path, the fault and the cure if the file is damaged.

    Args: `shape` checks the content and returns it, or raises `shapes.Wrong`; `cure` says what to
    do with a damaged file.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
        return shape(content)
    except FileNotFoundError:
        return None
    except Wrong as error:
        fault = str(error)
    except DAMAGED as error:
        fault = "the content is not valid JSON: %s" % error
    raise BadInput("%s is damaged (%s): %s" % (path, fault, cure))


def read_intact(path: str, shape: Shape[T]) -> Optional[T]:
    """Return the content of a JSON file, or None for a missing, unreadable or damaged file.

    Args: `shape` as for `read_json`.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            return shape(json.load(stream))
    except (OSError,) + DAMAGED:
        return None


def check_folder(name: str, path: str) -> None:
    """Raise BadInput if this process cannot write files into the folder `path`.

    The folder may be missing, and the function leaves no file. It makes a temporary folder in the
    nearest folder that exists, because the rights alone tell nothing about a full or read-only
    disk, or about /proc.

    Args: `name` the name of the setting in the message.
    """
    there = os.path.abspath(path)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    try:
        with tempfile.TemporaryDirectory(prefix=".mxcluster-", dir=there) as folder:
            with open(os.path.join(folder, "probe"), "wb") as stream:
                stream.write(b"x" * BLOCK)
        free = shutil.disk_usage(there).free
    except OSError as error:
        raise BadInput(
            "%s=%s: the controller cannot write to %s (%s): correct the path, or the owner and the "
            "rights of this folder, or free disk space" % (name, path, there, error.strerror)
        ) from error
    if free < LEAST_FREE:
        raise BadInput(
            "%s=%s: the disk of %s has only %d MB left, and the results of a job need at least %d "
            "MB: free disk space, or set %s to a folder on another disk"
            % (name, path, there, free >> 20, LEAST_FREE >> 20, name)
        )


def disk_space(path: str) -> int:
    """Return the bytes of disk that the file or folder `path` takes, 0 for a missing one.

    The function follows no link, and stops after MOST_FILES files, which a script may have made.
    """
    total = seen = 0
    for folder, _, files in os.walk(path):
        for name in [".", *files]:
            with contextlib.suppress(OSError):  # another process has removed it
                total += 512 * os.lstat(os.path.join(folder, name)).st_blocks
            seen += 1
            if seen >= MOST_FILES:
                return total
    return total


def sha256(path: str) -> str:
    """Return the SHA-256 of the file `path` as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()
