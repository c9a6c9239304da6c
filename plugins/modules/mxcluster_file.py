#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: a file, written whole or not at all."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_file
short_description: Write a file in one step, whole or not at all
description:
  - Writes what the controller gives to a file on the node, if the file has not got that content already.
  - The file is written beside its place and then renamed, so that it is never seen half-written. Missing folders are
    made.
  - Unlike M(ansible.builtin.copy) it is one call for each node instead of two or more, makes the folders, works when
    several nodes share a disk and write at the same time, and tells the truth in check mode when the folder is not
    there yet.
author:
  - The mxcluster authors
options:
  path:
    description: The file.
    type: path
    required: true
  content:
    description: What the file is to hold, in base64. For small files; it or O(src) has to be given.
    type: str
  src:
    description:
      - A file on the controller that it is to be a copy of, however large. The action plugin of the same name brings it, to where
        only who Ansible is can write; from there O(user) copies it, and follows no link into what is somebody else's.
    type: path
  mode:
    description: The permissions of the file, octal, in quotes.
    type: str
    default: "0644"
  user:
    description: Who writes the file and makes the folders, if the module runs as root; empty for whoever runs it.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Write a greeting
  mxcluster_file:
    path: /opt/mxcluster/greeting
    content: "{{ 'Good morning' | b64encode }}"
"""

RETURN = r"""
path:
  description: The file.
  returned: success
  type: str
"""

import base64
import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.mxcluster_user import become
from ansible.module_utils.mxcluster_whole import read, same, shown, write


def open_source(module):
    """The brought file, opened while the module is still who may read it; None if there is none to copy."""
    if not module.params["src"]:
        return None
    try:
        return open(module.params["src"], "rb")
    except (IOError, OSError) as error:
        module.fail_json(msg="%s cannot be read: %s" % (module.params["src"], error.strerror or error))


def copied(module, path, source):
    """The result of copying the open file `source`."""
    try:
        with source:
            mode = int(module.params["mode"], 8)
            changed = not same(path, source, mode)
            if changed and not module.check_mode:
                write(path, source, mode)
    except ValueError as error:
        module.fail_json(msg="mode %s is not octal: %s" % (module.params["mode"], error))
    except (IOError, OSError) as error:
        module.fail_json(msg="%s cannot be written: %s. Nothing of it was kept; mend that and run this again."
                             % (path, error.strerror or error))
    return dict(changed=changed, path=path)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            path=dict(type="path", required=True),
            # Not a secret, but nobody wants to read it in the output of -vvv.
            content=dict(type="str", no_log=True),
            src=dict(type="path"),
            mode=dict(type="str", default="0644"),
            user=dict(type="str", default=""),
        ),
        required_one_of=[("content", "src")],
        mutually_exclusive=[("content", "src")],
        supports_check_mode=True,
    )
    path = os.path.abspath(module.params["path"])
    source = open_source(module)
    become(module, module.params["user"])
    os.umask(0o022)  # folders that are made on the way can be read by all
    if source:
        module.exit_json(**copied(module, path, source))
    try:
        content = base64.b64decode(module.params["content"])
        mode = int(module.params["mode"], 8)
    except (TypeError, ValueError) as error:
        module.fail_json(msg="content is not base64, or mode %s is not octal: %s" % (module.params["mode"], error))
    try:
        old, old_mode = read(path)
        changed = (old, old_mode) != (content, mode)
        if changed and not module.check_mode:
            write(path, content, mode)
    except (IOError, OSError) as error:
        module.fail_json(msg="%s cannot be written: %s. Nothing of it was kept; mend that and run this again."
                             % (path, error.strerror or error))
    result = dict(changed=changed, path=path)
    if old != content:
        result["diff"] = dict(before_header=path, after_header=path, before=shown(old), after=shown(content))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
