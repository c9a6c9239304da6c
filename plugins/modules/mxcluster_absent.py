#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: remove the files, folders and blocks of a role, and name what stays.

ansible.builtin.file cannot replace this module. It removes as root in folders of the training user,
removes files that somebody has changed by hand, and does not know what nodes share.

A file stays if it is another one than the last provisioning has left, and another one than the
roles would write now. A folder goes with all of its content, or only if it is empty. A block goes
from between its two marker lines, and the file stays unless it is empty then.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import base64
import glob
import json
import os
import pwd
import stat

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes, to_native
from ansible.module_utils.mxcluster_atomic_files import look_of, read, write
from ansible.module_utils.mxcluster_blocks import without_block
from ansible.module_utils.mxcluster_removal import (
    Kept,
    check_mounts,
    check_way,
    network_of,
    reason,
    remove,
    remove_empty,
    status,
)
from ansible.module_utils.mxcluster_user import ask_as, other

CHANGED = "changed by hand: remove the file yourself if nobody needs it"


def check_shared(module, path):
    """Raise Kept if nodes that this run leaves out may use `path`, too."""
    here, others = module.params["here"], module.params["others"]
    kind = network_of(path) if others else ""
    if here or kind:
        raise Kept(
            "%s may use it, too%s, and --limit leaves them out"
            % (", ".join(here or others), " (%s)" % kind if kind else "")
        )


def is_unchanged(module, path, contents):
    """Return True unless somebody has changed the file `path` since the last provisioning.

    A file that the last provisioning has not recorded counts as unchanged if nothing is known of
    its content.

    Args: `contents` a list of base64 texts, the contents that the roles may have written.
    """
    known = module.params["seen"].get(path)
    if known is not None and json.loads(known) == look_of(path):
        return True
    if contents:
        return read(path)[0] in [base64.b64decode(content) for content in contents]
    return known is None


def remove_block(path, marker, check):
    """Remove the blocks with `marker` from the file `path`. Return True if there was one."""
    path = os.path.realpath(path)
    old, mode = read(path)
    if old is None:
        return False
    lines, at = without_block(old, to_bytes(marker))
    if at is None:
        return False
    new = b"".join(lines)
    if not check:
        if new.strip():
            write(path, new, mode)
        else:
            os.unlink(path)
    return True


def remove_item(module, path, item):
    """Remove the file, folder or block `path`. Return True on a change.

    Raises Kept with the reason why `path` stays, or OSError.

    Args: `item` of the option `paths`.
    """
    if item["kind"] == "block":
        return remove_block(path, item["marker"], module.check_mode)
    found = status(path)
    if found is None:
        return False
    check_way(path)
    if item["shared"]:
        check_shared(module, path)
    if stat.S_ISDIR(found.st_mode) != (item["kind"] != "file"):
        raise Kept("was replaced by hand: remove it yourself if nobody needs it")
    if item["kind"] == "file" and not is_unchanged(module, path, item["contents"]):
        raise Kept(CHANGED)
    if item["kind"] == "folder":
        check_mounts(path)
    if item["kind"] == "empty":
        remove_empty(module, path, item["minor"])
    elif not module.check_mode:
        remove(module, path)
    return True


def remove_all(module):
    """Remove all items with the rights of this process. Return [removed paths, {path: reason}]."""
    removed, kept = [], {}
    for item in module.params["paths"]:
        pattern = os.path.expanduser(to_native(item["path"]))  # bytes under Python 2.7
        for path in sorted(glob.glob(pattern)) if "*" in pattern else [pattern]:
            try:
                if remove_item(module, path, item):
                    removed.append(path)
            except (IOError, OSError, Kept) as error:
                kept[path] = reason(error)
    return [removed, kept]


def main():
    """Remove the paths, and print the result for Ansible."""
    module = AnsibleModule(
        argument_spec=dict(
            paths=dict(
                type="list",
                elements="dict",
                required=True,
                options=dict(
                    path=dict(type="str", required=True),  # with ~/ for the home of `user`, or *
                    kind=dict(
                        type="str", choices=["file", "folder", "empty", "block"], default="file"
                    ),
                    # In base64. A file with another content was changed by hand.
                    contents=dict(type="list", elements="str", default=[], no_log=True),
                    marker=dict(type="str", default=""),  # {mark} becomes BEGIN and END
                    # Patterns of the names of bookkeeping files that an empty folder may have.
                    minor=dict(type="list", elements="str", default=[]),
                    shared=dict(type="bool", default=False),  # nodes may share the path
                ),
            ),
            user=dict(type="str", default=""),  # whose rights root uses
            # {path: the look of the file after the last provisioning, as JSON}, from the plugin.
            seen=dict(type="dict", default={}),
            # The nodes that this run leaves out, and those of them on this machine.
            others=dict(type="list", elements="str", default=[]),
            here=dict(type="list", elements="str", default=[]),
        ),
        supports_check_mode=True,
    )
    user = module.params["user"]
    try:
        entry = other(module, user) if user and pwd.getpwnam(user) else None
    except KeyError:  # without the user, there are no files of the user
        module.exit_json(changed=False, removed=[], kept={})
    removed, kept = ask_as(module, entry, lambda: remove_all(module))
    module.exit_json(changed=bool(removed), removed=removed, kept=kept)


if __name__ == "__main__":
    main()
