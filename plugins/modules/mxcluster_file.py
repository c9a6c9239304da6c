#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: a file, a folder with files, or nothing any more, as a user would do it."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_file
short_description: Write a file or a folder of files as a user, or remove them as that user
description:
  - Writes what the controller gives to a file on the node, if the file has not got that content already.
  - The file is written beside its place and then renamed, so that it is never seen half-written. Missing folders are
    made.
  - Unlike M(ansible.builtin.copy) it is one call for each node instead of two or more, makes the folders, works when
    several nodes share a disk and write at the same time, and tells the truth in check mode when the folder is not
    there yet.
  - Root writes, changes and removes nothing where O(user) could lay a link. It all happens with the rights of O(user).
author:
  - The mxcluster authors
options:
  path:
    description: The file or folder.
    type: path
    required: true
  state:
    description:
      - V(file) writes O(content) or the file O(src). V(absent) removes the file, or the folder and all that is in it.
      - V(directory) makes the folder, and copies the files of the folder O(src) into it. A folder that O(user) cannot make
        himself, root makes and gives to O(user), if nobody but root can change the folders above it.
    type: str
    choices: [file, directory, absent]
    default: file
  content:
    description: What the file is to hold, in base64. For small files; for V(state=file) it or O(src) has to be given.
    type: str
  src:
    description:
      - A file or a folder on the controller that it is to be a copy of, however large. The action plugin of the same name
        brings one file after the other to where only who Ansible is can write; from there O(user) copies it, and follows no
        link into what is somebody else's. Files of a folder that are there with the same SHA-256 are not brought again.
    type: path
  files:
    description:
      - For V(state=directory), the files that are to be there, C(bytes) and C(sha256) of each by its name in the folder. The
        action plugin asks with it which of them RV(lacking) names.
    type: dict
  mode:
    description:
      - The permissions of a file, or of the folder for V(state=directory) without O(src), octal, in quotes; the default is
        V(0644) or V(0755). Folders on the way to a file that only O(user) can read are for O(user) alone as well.
    type: str
  roots:
    description:
      - Folders that are refused, before anything is written, if the module runs as root and another user than root can
        change where they lead.
    type: list
    elements: path
    default: []
  user:
    description: Who does it, if the module runs as root; empty for whoever runs it.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Write a greeting
  mxcluster_file:
    path: /opt/mxcluster/greeting
    content: "{{ 'Good morning' | b64encode }}"

- name: Copy a data set
  mxcluster_file:
    path: /data/mnist
    state: directory
    src: /home/me/mnist
    user: mxcluster
"""

RETURN = r"""
path:
  description: The file or folder.
  returned: success
  type: str
lacking:
  description: The names of those O(files) that are not there, or differ.
  returned: O(files) are given
  type: list
  elements: str
"""

import base64
import os
import pwd
import shutil
import stat

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.mxcluster_folder import changed_by_others, make_for, refusal
from ansible.module_utils.mxcluster_user import act_as, other
from ansible.module_utils.mxcluster_whole import digest, make_folder, read, same, shown, write


def open_source(module):
    """The brought file, opened while the module is still who may read it; None if there is none to copy."""
    if not module.params["src"]:
        return None
    try:
        return open(module.params["src"], "rb")
    except (IOError, OSError) as error:
        module.fail_json(msg="%s cannot be read: %s" % (module.params["src"], error.strerror or error))


def copied(module, path, mode, source):
    """The result of copying the open file `source`."""
    with source:
        changed = not same(path, source, mode)
        if changed and not module.check_mode:
            write(path, source, mode)
    return dict(changed=changed, path=path)


def written(module, path, mode):
    """The result of writing what was given."""
    try:
        content = base64.b64decode(module.params["content"])
    except (TypeError, ValueError) as error:
        module.fail_json(msg="content is not base64: %s" % error)
    old, old_mode = read(path)
    result = dict(changed=(old, old_mode) != (content, mode), path=path)
    if result["changed"] and not module.check_mode:
        write(path, content, mode)
    if old != content:
        result["diff"] = dict(before_header=path, after_header=path, before=shown(old), after=shown(content))
    return result


def removed(module, path):
    """The result of removing the file or folder."""
    result = dict(changed=os.path.lexists(path), path=path)
    if result["changed"] and not module.check_mode:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    return result


def foldered(module, path, mode, made, unsafe):
    """The result of making the folder, if root has not `made` it already, and of a look at its files."""
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
            module.fail_json(msg="%s is not of %s, but of uid %d: `chown %s %s`, or choose another folder"
                                 % (path, who, owner, who, path))
        if os.path.isdir(path) and stat.S_IMODE(os.stat(path).st_mode) != mode:
            result["changed"] = True
            if not module.check_mode:
                os.chmod(path, mode)
        return result
    if made:
        os.chmod(path, 0o755)
    result["lacking"] = sorted(name for name, told in files.items()
                               if digest(os.path.join(path, name)) != (told["bytes"], told["sha256"]))
    return result


def act(module, path, mode, source, made, unsafe):
    """Do what the module is there for, as the user, and end it."""
    os.umask(0o022 if mode & 0o044 else 0o077)  # folders that are made on the way
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
            module.fail_json(msg="%s cannot be removed: %s (%s). Mend that and run this again."
                                 % (path, error.strerror or error, error.filename))
        module.fail_json(msg="%s cannot be written: %s. Nothing of it was kept; mend that and run this again."
                             % (path, error.strerror or error))
    module.exit_json(**result)


def refuse_roots(module):
    """Refuse what is to be root's and is not."""
    for path in module.params["roots"] if os.geteuid() == 0 else []:
        found = changed_by_others(path)
        if found:
            module.fail_json(msg="%s is to be root's alone, since root runs what lies there, and others than root can change "
                                 "%s: `chown root %s; chmod go-w %s`, or choose another folder" % (path, found, found, found))


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            path=dict(type="path", required=True),
            state=dict(type="str", choices=["file", "directory", "absent"], default="file"),
            # Not a secret, but nobody wants to read it in the output of -vvv.
            content=dict(type="str", no_log=True),
            src=dict(type="path"),
            files=dict(type="dict"),
            mode=dict(type="str"),
            roots=dict(type="list", elements="path", default=[]),
            user=dict(type="str", default=""),
        ),
        required_if=[("state", "file", ["content", "src"], True)],
        mutually_exclusive=[("content", "src")],
        supports_check_mode=True,
    )
    path, state, user = os.path.abspath(module.params["path"]), module.params["state"], module.params["user"]
    mode = module.params["mode"] or ("0755" if state == "directory" else "0644")
    try:
        mode = int(mode, 8)
    except ValueError as error:
        module.fail_json(msg="mode %s is not octal: %s" % (mode, error))
    refuse_roots(module)
    source = open_source(module)
    entry = other(module, user)
    for_user = entry is not None and state == "directory"
    unsafe = changed_by_others(os.path.dirname(path)) if for_user else None
    made = for_user and not unsafe and not module.check_mode and make_for(entry, path)
    act_as(module, user, lambda: act(module, path, mode, source, made, unsafe))


if __name__ == "__main__":
    main()
