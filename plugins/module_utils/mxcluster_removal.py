# -*- coding: utf-8 -*-
"""Remove files and folders, so that root removes only what no other user can exchange.

A folder of another user is emptied by a child process with the rights of that user. Root itself
removes only entries of folders that no other user can change, so no path can lead elsewhere.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import io
import os
import pwd
import re
import stat
import struct
from fnmatch import fnmatchcase as fnmatch

from ansible.module_utils.mxcluster_atomic_files import NOT_THERE
from ansible.module_utils.mxcluster_folder import changed_by_others
from ansible.module_utils.mxcluster_user import ask_as

LIMIT = 3600.0  # seconds for the removal of one user's files
# File systems of a server. Other nodes may use the same folder.
NETWORK = frozenset("9p afs beegfs ceph cifs gfs2 gpfs lustre nfs nfs4 ocfs2 orangefs smb3".split())
NETWORK_FUSE = ("fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs", "fuse.s3fs")
# /proc/mounts writes a blank, a tab, a line break and a backslash of a name as octal numbers.
OCTAL = re.compile(b"\\\\([0-3][0-7][0-7])")


class Kept(Exception):
    """The reason why a file or folder stays, as text."""


def status(path):
    """Return the result of lstat, or None without a file at `path`."""
    try:
        return os.lstat(path)
    except OSError as error:
        if error.errno in NOT_THERE:
            return None
        raise


def check_way(path):
    """Raise Kept if this process is root and another user can exchange `path`."""
    unsafe = changed_by_others(os.path.dirname(path)) if os.geteuid() == 0 else None
    if unsafe:
        raise Kept(
            "other users can change %s, so root removes nothing there: remove this path by hand"
            % unsafe
        )


def remove(module, path, names=None):
    """Remove the file, link or folder `path`, with the content of the folder.

    Another process may remove the same files at the same time. Raises Kept or OSError at the first
    file that must stay.

    Args: `names` the only entries of the folder that may go with it, None for all.
    """
    try:
        found = status(path)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(path)
            return
        if found.st_dev != os.stat(os.path.dirname(path)).st_dev:
            raise Kept("a file system is mounted on %s: unmount it, or remove the files" % path)
        if os.geteuid() == 0 and found.st_uid != 0:
            empty_as_owner(module, path, found, names)
        else:
            empty(module, path, found, names)
        os.rmdir(path)
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise


def empty(module, path, found, names=None):
    """Remove entries of the folder `path` with the rights of this process.

    Args: `found` the result of lstat; `names` of the entries, None for all.
    """
    mode = stat.S_IMODE(found.st_mode)
    safe = (mode | 0o700) & ~0o022  # from here on, only the owner adds entries
    if safe != mode and found.st_uid == os.geteuid():
        os.chmod(path, safe)
    for name in os.listdir(path) if names is None else names:
        remove(module, os.path.join(path, name))


def empty_as_owner(module, path, found, names):
    """Remove entries of the folder `path` with the rights of its owner, in a child process.

    Args: as for `empty`.
    """

    def work():
        try:
            empty(module, path, found, names)
        except (Kept, OSError) as error:
            return reason(error)
        return None

    uid, gid = found.st_uid, found.st_gid
    try:
        owner = pwd.getpwuid(uid)
    except KeyError:  # the account is gone
        owner = pwd.struct_passwd((str(uid), "x", uid, gid, "", "/", ""))
    problem = ask_as(module, owner, work, LIMIT)
    if problem:
        raise Kept(problem)


def remove_empty(module, path, minor):
    """Remove the folder `path` if it has only entries that match `minor`.

    In check mode other items may go first, so the reason does not name the entries. Raises Kept
    with the entries, or OSError.

    Args: `minor` patterns of names.
    """
    entries = sorted(os.listdir(path))
    major = [name for name in entries if not any(fnmatch(name, pattern) for pattern in minor)]
    if major and module.check_mode:
        raise Kept("goes if it is empty then")
    if major:
        more = ", ..." if len(major) > 5 else ""
        raise Kept("holds " + ", ".join(major[:5]) + more)
    if not module.check_mode:
        remove(module, path, entries)


def reason(error):
    """Return the text of Kept or of an OSError."""
    if isinstance(error, Kept):
        return str(error)
    if error.errno == errno.EBUSY:
        return "a file system is mounted on %s" % error.filename
    return "cannot remove %s: %s" % (error.filename, error.strerror)


def check_mounts(path, mounts="/proc/mounts"):
    """Raise Kept if a file system is mounted on the folder `path` or below.

    A bind mount has the device of the folders around it, so that `remove` would enter it.
    """
    here = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) + "/"
    for place, _ in mounted(mounts):
        if (place + "/").startswith(here):
            raise Kept("a file system is mounted on %s: unmount it first" % place)


def network_of(path, mounts="/proc/mounts"):
    """Return the type of the network file system that holds `path`, or "" for a local one."""
    here, longest, kind = os.path.realpath(path), -1, ""
    for place, found in mounted(mounts):
        if (here + "/").startswith(place.rstrip("/") + "/") and len(place) >= longest:
            longest, kind = len(place), found
    return kind if kind in NETWORK or kind.startswith(NETWORK_FUSE) else ""


def mounted(mounts):
    """Return [(mount point, type of the file system)] of the file `mounts`."""
    with io.open(mounts, "rb") as source:
        fields = [line.split(b" ") for line in source]
    # A name may have any bytes. Python 2.7 has bytes for all paths.
    text = getattr(os, "fsdecode", bytes)
    return [(text(OCTAL.sub(unescaped, one[1])), text(one[2])) for one in fields]


def unescaped(match):
    """Return the byte of an escape sequence of /proc/mounts, such as that of a blank."""
    return struct.pack("B", int(match.group(1), 8))
