#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: marked blocks in files of the training user's home, written as that user."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_blocks
short_description: Rebuild a marked block in each of several files of a user's home
description:
  - Puts a block between two marks into each file, in the place of the one that is there; what else is in the file stays.
    A file is written whole or not at all, and made where it is missing.
  - A folder in the home that a file lies in is made where it is missing, and nobody else gets into it (C(0700)).
  - Unlike M(ansible.builtin.blockinfile) it reads and writes as the user, if it runs as root. In a home the user decides
    where links lead, and what root would do behind them, to other people's files, is no choice of his.
  - All files are one call for each node.
author:
  - The mxcluster authors
options:
  user:
    description: Whose home it is, if the module runs as root; empty for whoever runs it.
    type: str
    default: ""
  files:
    description: The files.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: The file, from the home on. Links are followed, as far as the user may.
        type: str
        required: true
      block:
        description: The text between the marks.
        type: str
        required: true
      marker:
        description: The lines before and after it; C({mark}) in it becomes C(BEGIN) and C(END).
        type: str
        required: true
      mode:
        description: The permissions of a file that is made, octal, in quotes. One that is there keeps those of them that it has.
        type: str
        default: "0600"
      place:
        description: Where a block goes that is not there yet, to the file's beginning or to its end.
        type: str
        choices: [BOF, EOF]
        default: EOF
"""

EXAMPLES = r"""
- name: Let ssh know the other nodes
  mxcluster_blocks:
    user: mxcluster
    files:
      - path: .ssh/known_hosts
        marker: "# {mark} of the others"
        block: "{{ lines | join('\n') }}"
"""

RETURN = r"""
home:
  description: The folder of that user.
  returned: success
  type: str
"""

import os
import pwd
import stat

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes
from ansible.module_utils.mxcluster_user import act_as
from ansible.module_utils.mxcluster_whole import read, shown, write


def rebuilt(content, block, marker, place):
    """The content with the block once: where the first of that mark was, or else at the place. All are bytes."""
    begin, end = marker.replace(b"{mark}", b"BEGIN"), marker.replace(b"{mark}", b"END")
    kept, start, at = [], None, None
    for line in content.splitlines(True):
        kept.append(line)
        if line.rstrip(b"\r\n") == begin:
            start = len(kept) - 1
        elif line.rstrip(b"\r\n") == end and start is not None:
            del kept[start:]
            at, start = start if at is None else at, None
    if at is None:
        at = 0 if place == "BOF" else len(kept)
    before = b"".join(kept[:at])
    if before and not before.endswith(b"\n"):
        before += b"\n"
    return before + b"\n".join([begin, block.rstrip(b"\n"), end, b"".join(kept[at:])])


def see_to_folder(path, check):
    """Make the folder, for its owner alone; whether there was anything to do."""
    try:
        if stat.S_IMODE(os.stat(path).st_mode) == 0o700:
            return False
        if not check:
            os.chmod(path, 0o700)
    except OSError:
        if os.path.isdir(path):
            raise
        if not check:
            os.mkdir(path, 0o700)
    return True


def see_to(home, given, check):
    """(whether there was anything to do, path, old content, new content) of one file."""
    path, mode = os.path.join(home, given["path"]), int(given["mode"], 8)
    folder = os.path.dirname(path)
    changed = folder != home and see_to_folder(folder, check)
    path = os.path.realpath(path)
    old, old_mode = read(path)
    if old is not None:
        mode &= old_mode
    new = rebuilt(old or b"", to_bytes(given["block"]), to_bytes(given["marker"]), given["place"])
    if (old, old_mode) != (new, mode):
        changed = True
        if not check:
            write(path, new, mode)
    return changed, path, old, new


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            user=dict(type="str", default=""),
            files=dict(type="list", elements="dict", required=True, options=dict(
                path=dict(type="str", required=True),
                block=dict(type="str", required=True),
                marker=dict(type="str", required=True),
                mode=dict(type="str", default="0600"),
                place=dict(type="str", choices=["BOF", "EOF"], default="EOF"),
            )),
        ),
        supports_check_mode=True,
    )
    act_as(module, module.params["user"], lambda: rebuild(module))


def rebuild(module):
    """Do what the module is there for, as the user."""
    os.umask(0o077)
    user = module.params["user"]
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
        home, name = entry.pw_dir, entry.pw_name
    except KeyError:  # check mode: the user was only talked of
        home, name = "/home/" + user, user
    changed, diff = False, []
    for given in module.params["files"]:
        try:
            touched, path, old, new = see_to(home, given, module.check_mode)
        except (IOError, OSError) as error:
            module.fail_json(msg="%s cannot be written by %s: %s (%s). It was left as it is; mend that and run this again."
                                 % (os.path.join(home, given["path"]), name, error.strerror or error, error.filename))
        changed = changed or touched
        if old != new:
            diff.append(dict(before_header=path, after_header=path, before=shown(old), after=shown(new)))
    # Somebody's .bashrc is told to those who ask for it.
    module.exit_json(changed=changed, home=home, **(dict(diff=diff) if module._diff else {}))


if __name__ == "__main__":
    main()
