#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: return the state of a node's files and of the training user's passwd entry.

The action plugin of the same name compares the state with the record on the controller.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_drift
short_description: Detect changes of a node since it was provisioned
description:
  - V(command=look) returns the reason to provision the node again. V(command=remember) records the
    state of the node. Both commands require the result of V(command=common), which is the input
    that all nodes share.
  - The module detects a changed file by owner, mode, size and times.
  - A child process without root's rights examines the training user's home.
attributes:
  check_mode:
    description: In check mode the module changes nothing and reports the change that it would make.
    support: full
  diff_mode:
    description: With C(--diff) the module returns the contents before and after a change.
    support: none
author:
  - The mxcluster authors
options:
  command:
    description: Whether to compute the common input, to look for a change, or to record the state.
    type: str
    choices: [common, look, remember]
    default: look
  files:
    description: Patterns of the files and folders on the node. C(/**) at the end of a pattern
      matches all files and folders below the path.
    type: list
    elements: str
    required: true
  roots:
    description: Folders that only root may change, including all folders above. The module checks
      the folders only if it runs as root.
    type: list
    elements: path
    default: []
  user_files:
    description: Patterns of files that O(user) can write. The module examines these files with the
      rights of that user. C(~/) is the user's home.
    type: list
    elements: str
    default: []
  wanted:
    description: All input, besides variables of roles, that determines the state of the node. With
      V(command=common), the input of every node. Only the action plugin reads this option.
    type: dict
  path:
    description: The file on the controller that records the state. Only the action plugin reads
      this option.
    type: path
  records_dir:
    description: The folder of the node records on the controller. Only the action plugin reads this
      option.
    type: path
  common:
    description: RV(common) of V(command=common). Only the action plugin reads this option.
    type: dict
  nodes:
    description: For V(common), all hosts whose records are inputs of every node, because each node
      gets the keys and addresses of these hosts. Only the action plugin reads this option.
    type: list
    elements: str
  controller_files:
    description: Files on the controller whose content affects the state of the node. Only the
      action plugin reads this option.
    type: list
    elements: path
    default: []
  layout:
    description: The variables on which running jobs rely, such as the folder of the jobs. If such a
      variable has changed and a job runs on the node, V(command=look) fails and names the job. Only
      the action plugin reads this option.
    type: dict
  sources:
    description: For V(common), the C(sources) of RV(common) at the start of the run. Only the
      action plugin reads this option.
    type: str
  anyway:
    description: Whether to provision the node in any case. Only the action plugin reads this
      option.
    type: bool
    default: false
  python:
    description: The interpreter of the environment, which produces the node record. Only the action
      plugin reads this option.
    type: path
  user:
    description:
      - The training user; empty for the login user. The module examines O(user_files), and
        M(mxcluster_node) makes the node record, with the rights of that user. A change of the
        user's passwd entry counts as a change of the node.
    type: str
    default: ''
notes:
  - In check mode V(look) works as usual, and V(remember) does nothing.
"""

EXAMPLES = r"""
- name: Compute the input that all nodes share
  mxcluster_drift:
    command: common
    records_dir: .state/mine/nodes
    nodes: [node1, node2]
    wanted: {hosts: "{{ groups }}"}
  register: known
  run_once: true

- name: Compare the node with its recorded state
  mxcluster_drift:
    files: [/opt/mxcluster/env/mxcluster-env.json]
    path: .state/mine/drift/{{ inventory_hostname }}.json
    records_dir: .state/mine/nodes
    common: "{{ known.common }}"
    wanted: {versions: "{{ versions_chosen }}"}
    python: /opt/mxcluster/env/bin/python
    user: mxcluster
"""

RETURN = r"""
seen:
  description: The state of each file, by its path, and of the user's passwd entry.
  returned: success
  type: dict
common:
  description: The input that all nodes share, as C(digests), C(sources) (a digest of the project's
    files) and C(variables) (the names of the variables that are inputs).
  returned: command is common
  type: dict
why:
  description: The reason to provision the node, null without a reason.
  returned: command is look
  type: str
"""

import glob
import os
import pwd
import stat

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.mxcluster_folder import changed_by_others
from ansible.module_utils.mxcluster_user import ask_as, other

BELOW = "/**"


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
        argument_spec=dict(
            files=dict(type="list", elements="str", required=True),
            roots=dict(type="list", elements="path", default=[]),
            user_files=dict(type="list", elements="str", default=[]),
            user=dict(type="str", default=""),
        ),
        supports_check_mode=True,
    )
    given = module.params
    seen = look_at(given["files"])
    seen.update(look_at_way(given["roots"]))
    seen.update(look_at_user(module, given["user"], given["user_files"]))
    module.exit_json(changed=False, seen=seen)


if __name__ == "__main__":
    main()
