#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: write or remove a file or a folder with the rights of a user.

ansible.builtin.copy cannot replace this module, because copy writes as root where the training user
can place links. This module also writes the data set digits and the package mxcluster into folders
of root. For these folders, copy would need two calls, and would fail in check mode if the folder is
missing.

The module writes a file with another content under a temporary name and then renames it, so all
programs see a complete file, and several nodes with a shared disk may write at the same time. With
--diff the module shows `content`, but not the content of `src`.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import base64
import errno
import os
import pwd
import stat

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.mxcluster_atomic_files import (
    digest,
    make_folder,
    read,
    remove,
    same,
    shown,
    write,
)
from ansible.module_utils.mxcluster_folder import changed_by_others, make_for, refusal
from ansible.module_utils.mxcluster_user import act_as, other


def open_source(module):
    """Open the file of the option `src` for reading, and return it, or None without `src`.

    The module calls the function with its own rights, because the user of the option `user` may
    have no right to read the file.
    """
    if not module.params["src"]:
        return None
    try:
        return open(module.params["src"], "rb")
    except (IOError, OSError) as error:
        module.fail_json(
            msg="cannot read %s, the transferred copy of the controller's file: %s. Run the "
            "playbook again" % (module.params["src"], error.strerror or error)
        )


def copied(module, path, mode, source):
    """Copy the open file `source` to `path`, unless `path` has the same content and mode.

    Returns {"changed", "path"}.
    """
    with source:
        changed = not same(path, source, mode)
        if changed and not module.check_mode:
            write(path, source, mode)
    return dict(changed=changed, path=path)


def written(module, path, mode):
    """Write the option `content` to `path`, unless `path` has the same content and mode.

    Returns {"changed", "path"}, and for a different content also "diff".
    """
    try:
        content = base64.b64decode(module.params["content"])
    except (TypeError, ValueError) as error:
        module.fail_json(
            msg="the value of the option 'content' is not base64 (%s): use the filter b64encode"
            % error
        )
    old, old_mode = read(path)
    result = dict(changed=(old, old_mode) != (content, mode), path=path)
    if result["changed"] and not module.check_mode:
        write(path, content, mode)
    if old != content:
        result["diff"] = dict(
            before_header=path, after_header=path, before=shown(old), after=shown(content)
        )
    return result


def removed(module, path):
    """Remove the file or folder `path`.

    Returns {"changed": True if `path` existed, "path"}. Raises OSError if the user may not remove
    or examine `path`.
    """
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return dict(changed=False, path=path)
    if not module.check_mode:
        remove(path)
    return dict(changed=True, path=path)


def foldered(module, path, mode, made, unsafe):
    """Make the folder `path`, and compare its files with the option `files`.

    Without `files` the function sets the permissions of the folder to `mode` (int).

    Args: `made` True if root has already made the folder; `unsafe` the folder above `path` that
    non-root users can change, or None.

    Returns:
        {"changed", "path"}. With `files` the dict also has "lacking", the sorted names of the
        files that are missing or differ.
    """
    result, files = dict(changed=made or not os.path.isdir(path), path=path), module.params["files"]
    if not os.path.isdir(path) and not module.check_mode:
        try:
            make_folder(path)
        except OSError as error:
            module.fail_json(msg=refusal(path, pwd.getpwuid(os.geteuid()).pw_name, error, unsafe))
    if files is None:
        owner = os.stat(path).st_uid if os.path.isdir(path) else os.geteuid()
        if owner != os.geteuid() and not module.check_mode:
            who = pwd.getpwuid(os.geteuid()).pw_name
            module.fail_json(
                msg="%s must belong to %s, but belongs to the uid %d: run `chown %s %s` as root, "
                "or choose another folder" % (path, who, owner, who, path)
            )
        if os.path.isdir(path) and stat.S_IMODE(os.stat(path).st_mode) != mode:
            result["changed"] = True
            if not module.check_mode:
                os.chmod(path, mode)
        return result
    if made:
        os.chmod(path, 0o755)
    result["lacking"] = sorted(
        name for name, expected in files.items() if differs(os.path.join(path, name), expected)
    )
    return result


def differs(path, expected):
    """Return True if the file `path` is missing, or has another content or other permissions.

    Args: `expected` {"bytes": size, "sha256": hexadecimal, "mode": octal text; without "mode" the
    permissions do not count}.
    """
    if digest(path) != (expected["bytes"], expected["sha256"]):
        return True
    return "mode" in expected and stat.S_IMODE(os.stat(path).st_mode) != int(expected["mode"], 8)


def act(module, path, mode, source, made, unsafe):
    """Bring `path` to the wanted state with the rights of the user, and end the module.

    Args: `source` from `open_source`; `made` and `unsafe` as in `foldered`.
    """
    os.umask(0o022 if mode & 0o044 else 0o077)  # for new folders above `path`
    state = module.params["state"]
    try:
        if state == "absent":
            result = removed(module, path)
        elif state == "directory":
            result = foldered(module, path, mode, made, unsafe)
        else:
            result = copied(module, path, mode, source) if source else written(module, path, mode)
    except (IOError, OSError) as error:
        if state == "absent":
            module.fail_json(
                msg="cannot remove %s: %s (%s). Correct the owner or the rights of the folder that "
                "contains this path. Then run the playbook again."
                % (path, error.strerror or error, error.filename)
            )
        module.fail_json(
            msg="cannot write %s: %s. The old content stays. Free disk space, or correct the owner "
            "or the rights of the folder. Then run the playbook again."
            % (path, error.strerror or error)
        )
    module.exit_json(**result)


def refuse_roots(module):
    """Fail the module if a non-root user can change a folder of the option `roots`.

    The function checks the folders only if the module runs as root.
    """
    for path in module.params["roots"] if os.geteuid() == 0 else []:
        found = changed_by_others(path)
        if found:
            module.fail_json(
                msg="%s must be writable by root only, since root runs programs from this folder. "
                "But non-root users can change %s: run `chown root %s; chmod go-w %s`, or choose "
                "another folder" % (path, found, found, found)
            )


def main():
    """Write or remove the file or folder, and print the result for Ansible."""
    module = AnsibleModule(
        argument_spec=dict(
            path=dict(type="path", required=True),
            # A directory gets the files of the folder `src`. If `user` lacks the rights to make the
            # directory, root makes it, provided that only root can change the folders above it.
            # Absent removes a folder with its content.
            state=dict(type="str", choices=["file", "directory", "absent"], default="file"),
            # In base64. The content is no secret, but would flood the output of -vvv.
            content=dict(type="str", no_log=True),
            # A file or folder on the controller. The action plugin transfers the files that differ
            # to a folder that only the become user can write, so a link cannot lead to other files.
            src=dict(type="path"),
            # {name in the directory: {"bytes", "sha256", perhaps "mode"}}, from the action plugin.
            # The answer has the missing and the different files as `lacking`.
            files=dict(type="dict"),
            # In octal: by default 0644, for a directory 0755. If only `user` can read a file, only
            # `user` can enter new folders on its path.
            mode=dict(type="str"),
            # Root writes nothing if another user can change a folder on these paths.
            roots=dict(type="list", elements="path", default=[]),
            user=dict(type="str", default=""),  # whose rights root uses; empty for the current user
        ),
        required_if=[("state", "file", ["content", "src"], True)],
        mutually_exclusive=[("content", "src")],
        supports_check_mode=True,
    )
    path = os.path.abspath(module.params["path"])
    state, user = module.params["state"], module.params["user"]
    mode = module.params["mode"] or ("0755" if state == "directory" else "0644")
    try:
        mode = int(mode, 8)
    except ValueError:
        module.fail_json(msg="mode %s is not octal: use digits from 0 to 7, such as 0644" % mode)
    refuse_roots(module)
    source = open_source(module)
    entry = other(module, user)
    for_user = entry is not None and state == "directory"
    unsafe = changed_by_others(os.path.dirname(path)) if for_user else None
    made = for_user and not unsafe and not module.check_mode and make_for(entry, path)
    act_as(module, user, lambda: act(module, path, mode, source, made, unsafe))


if __name__ == "__main__":
    main()
