# -*- coding: utf-8 -*-
"""Folders on a node: which ones only root can change, and what root may make for the training user."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import os
import stat

LINKS = 40  # as many links as Linux follows


def changed_by_others(path):
    """The first folder or link on the way to `path` that another user than root can change; None if there is none.

    `path` itself counts too. What is missing, root would make in a folder that counts. The kernel
    resolves a path in the same order, so with None the path leads where root wants it to.
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
        # In a sticky folder such as /tmp others can make entries, and cannot replace root's.
        sticky = bool(found.st_mode & stat.S_ISVTX)
        if found.st_mode & 0o022 and not (sticky and stat.S_ISDIR(found.st_mode)):
            return here
        sticky = sticky and bool(found.st_mode & 0o022)
        done = here
    return done if sticky else None


def make_for(entry, path):
    """Make the folder `path` for the user with this passwd entry: whether there was anything to make.

    Root makes missing folders on the way as its own. Only `path` itself becomes the user's, which
    nobody can replace where no other than root can change the folders above it.
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
    """What to say when `who` cannot make the folder `path`, and root does not, since others can change `unsafe`."""
    return ("%s cannot be made by %s: %s.%s Make it, give it to %s, and run this again; or choose another folder."
            % (path, who, error.strerror or error,
               " Root makes no folder there, since others than root can change %s." % unsafe if unsafe else "", who))
