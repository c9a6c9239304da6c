#!/usr/bin/python
# -*- coding: utf-8 -*-
"""How files and users of a node look; the action plugin of the same name compares it with what the controller remembers."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_drift
short_description: See whether a node is still as it was provisioned
description:
  - With V(command=look) the result says why there is something to do on the node. With V(command=remember) it is remembered how
    the node is now. With V(command=common) the controller finds what both need and what is the same for all nodes; no node is
    asked.
  - What a file holds is not read; its owner, mode, size and times tell whether somebody has touched it.
  - What lies in the training user's home, a child process without root's rights looks at.
author:
  - The mxcluster authors
options:
  command:
    description: V(common), V(look) or V(remember).
    type: str
    choices: [common, look, remember]
    default: look
  files:
    description: Patterns of the files and folders on the node. C(/**) at the end of one is all that lies below.
    type: list
    elements: str
    required: true
  roots:
    description: Folders that only root may be able to change, on the whole way to them. Not looked at where Ansible is not root.
    type: list
    elements: path
    default: []
  user_files:
    description: Paths that O(user) looks at, who can write there. C(~/) is the user's home.
    type: list
    elements: str
    default: []
  wanted:
    description: All that decides what goes on the node, besides the variables of roles; with V(command=common), on every node.
      For the action plugin.
    type: dict
  path:
    description: The file on the controller in which it is remembered. For the action plugin.
    type: path
  records_dir:
    description: The folder of the node records on the controller. For the action plugin.
    type: path
  common:
    description: RV(common) of V(command=common). For the action plugin.
    type: dict
  nodes:
    description: For V(common), all hosts whose records count, since their keys and addresses go on each. For the action plugin.
    type: list
    elements: str
  controller_files:
    description: Files on the controller whose content goes on the node, or decides what does. For the action plugin.
    type: list
    elements: path
    default: []
  sources:
    description: For V(common), the C(sources) of RV(common) with which the run began. For the action plugin.
    type: str
  anyway:
    description: Whether there is something to do in any case. For the action plugin.
    type: bool
    default: false
  python:
    description: The interpreter of the environment, which tells the node record. For the action plugin.
    type: path
  user:
    description:
      - The training user, who should be there as before, looks at O(user_files) and tells the record. If it is empty, whoever
        Ansible connects as does.
    type: str
    default: ''
notes:
  - In check mode V(look) works as always, and nothing is remembered.
"""

EXAMPLES = r"""
- name: Find what the state of every node depends on
  mxcluster_drift:
    command: common
    records_dir: .state/mine/nodes
    nodes: [node1, node2]
    wanted: {hosts: "{{ groups }}"}
  register: known
  run_once: true

- name: Look whether the node is as it was provisioned
  mxcluster_drift:
    files: [/opt/mxcluster/env/mxcluster-env.json]
    path: .state/mine/drift/{{ inventory_hostname }}.json
    records_dir: .state/mine/nodes
    common: "{{ known.common }}"
    wanted: {versions: "{{ __versions }}"}
    python: /opt/mxcluster/env/bin/python
    user: mxcluster
"""

RETURN = r"""
seen:
  description: How each file and user looks.
  returned: success
  type: dict
common:
  description: What counts for all nodes; C(digest) of it, C(sources), a digest of the project, and C(variables), the names of
    those that count.
  returned: command is common
  type: dict
why:
  description: Why there is something to do, null if there is not.
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
    """What tells whether a file has been touched; of a folder, whose it is and who may write into it."""
    found = os.lstat(path)
    owner = [oct(found.st_mode), found.st_uid, found.st_gid]
    if stat.S_ISLNK(found.st_mode):
        return [os.readlink(path)]
    if stat.S_ISDIR(found.st_mode):
        return owner
    return owner + [found.st_size, "%.6f" % found.st_mtime, "%.6f" % found.st_ctime]


def paths_of(pattern):
    """The paths that a pattern stands for. No link is followed."""
    if not pattern.endswith(BELOW):
        return glob.glob(os.path.expanduser(pattern))
    return [os.path.join(folder, name) for folder, folders, files in os.walk(pattern[:-len(BELOW)]) for name in folders + files]


def look_at(patterns):
    """{path: how it looks} of all that is there."""
    seen = {}
    for pattern in patterns:
        for path in paths_of(pattern):
            try:
                seen[path] = look_of(path)
            except OSError:  # gone meanwhile
                continue
    return seen


def look_at_user(module, name, patterns):
    """{"user name": how its entry looks} and what that user sees; {} if there is no such user."""
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
    """{"way to folder": what others than root can change on it}; a way that only root can change does not appear."""
    found = {folder: changed_by_others(folder) for folder in folders} if os.geteuid() == 0 else {}
    return {"way to " + folder: unsafe for folder, unsafe in found.items() if unsafe}


def main():
    """Run the module."""
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
