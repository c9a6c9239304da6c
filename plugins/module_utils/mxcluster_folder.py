# -*- coding: utf-8 -*-
"""Check that only root can change a folder on a node, and create folders for the training user."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import os
import stat

LINKS = 40  # the maximum number of links that Linux follows in a path


def changed_by_others(path):
    """Return the first component of `path` that a user other than root can change, else None.

    The function checks every folder and link up to and including `path`, in the kernel's order of
    resolution. For a missing component it checks the existing parent, because root would create the
    component there. A component that `lstat` cannot read counts as changeable. If the result is
    None, only root can redirect `path`.
    """
    done, rest, links, sticky = "/", ["."] + os.path.abspath(path).split("/"), 0, False
    rest.reverse()
    while rest:
        name = rest.pop()
        here = os.path.dirname(done) if name == ".." else os.path.normpath(os.path.join(done, name))
        try:
            found = os.lstat(here)
        except OSError as error:
            if error.errno != errno.ENOENT:
                return here
            return done if sticky else None
        if found.st_uid != 0:
            return here
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > LINKS:
                return here
            target = os.readlink(here)
            done = "/" if target.startswith("/") else done
            rest.extend(reversed(target.split("/")))
            continue
        # In a sticky folder such as /tmp other users can add entries, but not replace root's entry.
        sticky = bool(found.st_mode & stat.S_ISVTX)
        if found.st_mode & 0o022 and not (sticky and stat.S_ISDIR(found.st_mode)):
            return here
        sticky = sticky and bool(found.st_mode & 0o022)
        done = here
    return done if sticky else None


def make_for(entry, path):
    """Make the folder `path` for the user of the passwd `entry`. Return True if `path` was missing.

    The user owns `path`, and root owns all new folders above `path`. No other user can replace
    `path` if only root can change the folders above.
    """
    if os.path.lexists(path):
        return False
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        before = os.umask(0o022)
        try:
            os.makedirs(parent)
        finally:
            os.umask(before)
    os.mkdir(path, 0o700)
    os.lchown(path, entry.pw_uid, entry.pw_gid)
    return True


def refusal(path, who, error, unsafe):
    """Return the error message about a folder `path` that the user `who` (str) cannot create.

    Args: `error` the OSError; `unsafe` the folder above `path` that non-root users can change, or
    None. Root creates no folder below `unsafe`.
    """
    return (
        "%s cannot be created by %s: %s.%s Create this folder with the owner %s and run the "
        "playbook again, or choose another folder."
        % (
            path,
            who,
            error.strerror or error,
            " Root creates no folder there, since non-root users can change %s." % unsafe
            if unsafe
            else "",
            who,
        )
    )
