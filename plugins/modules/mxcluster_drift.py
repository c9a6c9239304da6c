#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: return the state of a node's files and of the training user's passwd entry.

The action plugin of the same name compares the state with the record on the controller. A changed
file shows by its owner, mode, size and times. A child process without root's rights examines the
training user's home.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import glob
import os
import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.mxcluster_atomic_files import look_of
from ansible.module_utils.mxcluster_folder import changed_by_others
from ansible.module_utils.mxcluster_user import ask_as, other

BELOW = "/**"


def paths_of(pattern):
    """Return the paths that match an item of the option `files`.

    For a pattern with /** the function follows no links to folders.
    """
    if not pattern.endswith(BELOW):
        return glob.glob(os.path.expanduser(pattern))
    return [
        os.path.join(folder, name)
        for folder, folders, files in os.walk(pattern[: -len(BELOW)])
        for name in folders + files
    ]


def look_at(patterns):
    """Return {path: result of `look_of`} of all files that match an item of `patterns`."""
    seen = {}
    for pattern in patterns:
        for path in paths_of(pattern):
            try:
                seen[path] = look_of(path)
            except OSError:  # another process has just removed the file
                continue
    return seen


def look_at_user(module, name, patterns):
    """Return the state of a user's files and passwd entry, {} if the user does not exist.

    The result is {path: result of `look_of`, "user <name>": [uid, gid, home, shell]}. The function
    examines the files with the rights of the user `name`. If `name` is "", it uses the rights of
    the module and adds no passwd entry.
    """
    if not name:
        return look_at(patterns)
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return {}
    seen = ask_as(module, other(module, name), lambda: look_at(patterns))
    seen["user " + name] = [entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell]
    return seen


def look_at_way(folders):
    """Return {"way to <folder>": unsafe path} for each of `folders` that non-root users can change.

    The unsafe path is the first part of the folder's path that such a user can change. The result
    is empty unless the module runs as root.
    """
    found = {folder: changed_by_others(folder) for folder in folders} if os.geteuid() == 0 else {}
    return {"way to " + folder: unsafe for folder, unsafe in found.items() if unsafe}


def main():
    """Examine the files and the user of a node, and print their state for Ansible."""
    module = AnsibleModule(
        argument_spec=dict(  # the action plugin describes the arguments
            files=dict(type="list", elements="str", required=True),
            roots=dict(type="list", elements="path", default=[]),
            user_files=dict(type="list", elements="str", default=[]),
            user=dict(type="str", default=""),
        ),
        supports_check_mode=True,
    )
    options = module.params
    seen = look_at(options["files"])
    seen.update(look_at_way(options["roots"]))
    seen.update(look_at_user(module, options["user"], options["user_files"]))
    module.exit_json(changed=False, seen=seen)


if __name__ == "__main__":
    main()
