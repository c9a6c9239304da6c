# -*- coding: utf-8 -*-
"""Write files atomically, and read and compare them."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import hashlib
import os
import shutil
import stat
import tempfile

NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENXIO)  # open() of a socket gives ENXIO


def open_file(path):
    """Open the regular file at `path` for reading and return it, or None without a regular file.

    A FIFO does not block the function, which then returns None.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in NOT_THERE:
            return None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def read(path):
    """Return (content, mode) of the file at `path`, or (None, None) without a regular file.

    "content" is bytes, "mode" the permissions (int).
    """
    source = open_file(path)
    if source is None:
        return None, None
    with source:
        return source.read(), stat.S_IMODE(os.fstat(source.fileno()).st_mode)


def text_of(path):
    """Return the text of the file at `path`, "" if this process cannot read the file."""
    try:
        with open(path) as source:
            return source.read()
    except (IOError, OSError, ValueError):  # ValueError: the file is not text
        return ""


def digest(path):
    """Return (size in bytes, SHA-256 in hexadecimal) of the file at `path`.

    Returns (None, None) without a regular file.
    """
    source = open_file(path)
    if source is None:
        return None, None
    with source:
        hexadecimal = sha256(source)
        return source.tell(), hexadecimal


def look_of(path):
    """Return the attributes of the file at `path` that reveal a change of the file (list).

    The attributes are the mode and owner of a folder, the target of a link, and the mode, owner,
    size and times of any other file.
    """
    found = os.lstat(path)
    owner = [oct(found.st_mode), found.st_uid, found.st_gid]
    if stat.S_ISLNK(found.st_mode):
        return [os.readlink(path)]
    if stat.S_ISDIR(found.st_mode):
        return owner
    return owner + [found.st_size, "%.6f" % found.st_mtime, "%.6f" % found.st_ctime]


def sha256(source):
    """Return the SHA-256, in hexadecimal, of the rest of the open file `source`."""
    seen = hashlib.sha256()
    for piece in iter(lambda: source.read(1 << 20), b""):
        seen.update(piece)
    return seen.hexdigest()


def make_folder(path):
    """Create the folder `path` and all missing folders above `path`. Keep an existing folder."""
    try:
        os.makedirs(path)
    except OSError as error:
        if error.errno != errno.EEXIST or not os.path.isdir(path):
            raise


def same(path, source, mode):
    """Return True if the file `path` has the content of the open file `source` and `mode` (int)."""
    there = open_file(path)
    if there is None:
        return False
    with there:
        state, size = os.fstat(there.fileno()), os.fstat(source.fileno()).st_size
        if (stat.S_IMODE(state.st_mode), state.st_size) != (mode, size):
            return False
        equal = sha256(source) == sha256(there)
        source.seek(0)
        return equal


def write(path, content, mode):
    """Write `content`, bytes or an open file, to the file `path` atomically, with `mode` (int).

    The function creates missing folders above `path`.
    """
    folder = os.path.dirname(path)
    make_folder(folder)
    handle, temporary = tempfile.mkstemp(prefix=".mxcluster-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as target:
            if hasattr(content, "read"):
                shutil.copyfileobj(content, target, 1 << 20)
            else:
                target.write(content)
            target.flush()
            os.fsync(target.fileno())
        os.chmod(temporary, mode)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def remove(path):
    """Remove the file, folder or link at `path`. The target of a link stays."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def shown(content):
    """Return the bytes `content` as text for --diff, or "" for None."""
    if content is None:
        return ""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return "(%d bytes that are not text)\n" % len(content)
