#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: the training user's ssh key on a node."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_ssh_key
short_description: Make or bring an ssh key pair without a passphrase, and tell its public half
description:
  - Without O(private), a pair of type ed25519 is made if there is none; a private key that is there already is used, and
    never changed.
  - A key with a passphrase is refused.
  - A public half that is missing or belongs to another key is written anew from the private one.
author:
  - The mxcluster authors
options:
  name:
    description: The name of the private key's file in C(~/.ssh).
    type: str
    required: true
  private:
    description: A private key to put there, in the place of one that differs; empty to make one.
    type: str
    default: ""
  user:
    description: Whose it is, if the module runs as root; empty for whoever runs it.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Make a key
  mxcluster_ssh_key:
    name: id_ed25519
    user: mxcluster
  register: key
"""

RETURN = r"""
public_key:
  description: The public half, without a comment; empty in check mode if there is no key yet.
  returned: success
  type: str
user:
  description: Whose it is.
  returned: success
  type: str
"""

import os
import pwd
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes
from ansible.module_utils.mxcluster_user import act_as
from ansible.module_utils.mxcluster_whole import read, write

MOVE_AWAY = "Move it away, and provision.yml makes another; or set ssh_mesh_mode: none."
GIVE_ANOTHER = "Give another one as ssh_mesh_shared_key_file or ssh_mesh_shared_key, or none, and provision.yml makes it."


def public_half(module, private, cure, name=None):
    """What ssh-keygen computes from the private key; fails if it needs a passphrase or is none, under its name or another."""
    code, out, err = module.run_command(["ssh-keygen", "-y", "-P", "", "-f", private])
    if code != 0:
        module.fail_json(msg="%s cannot be used without a person (%s): it may have a passphrase, or be damaged or readable by "
                             "others. %s" % (name or private, (err or out).strip(), cure))
    return " ".join(out.split()[:2])


def foretold(module, given):
    """The public half of a given key that is not in its place yet (check mode); '' if there is none to tell."""
    if not given:
        return ""
    folder = tempfile.mkdtemp()
    try:
        write(os.path.join(folder, "key"), given, 0o600)
        code, out, _ = module.run_command(["ssh-keygen", "-y", "-P", "", "-f", os.path.join(folder, "key")])
        return " ".join(out.split()[:2]) if code == 0 else ""
    finally:
        shutil.rmtree(folder)


def recorded(path):
    """What the .pub file says; '' if it is not there."""
    try:
        with open(path) as source:
            return " ".join(source.read().split()[:2])
    except (IOError, OSError):
        return ""


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            name=dict(type="str", required=True),
            private=dict(type="str", default="", no_log=True),
            user=dict(type="str", default=""),
        ),
        supports_check_mode=True,
    )
    act_as(module, module.params["user"], lambda: provide(module))


def provide(module):
    """Do what the module is there for, as the user."""
    os.umask(0o077)
    given = to_bytes(module.params["private"])
    try:
        entry = pwd.getpwnam(module.params["user"]) if module.params["user"] else pwd.getpwuid(os.geteuid())
    except KeyError:  # check mode: the user was only talked of
        module.exit_json(changed=True, public_key=foretold(module, given), user=module.params["user"])
    folder = os.path.join(entry.pw_dir, ".ssh")
    private = os.path.join(folder, module.params["name"])
    result = dict(changed=False, public_key="", user=entry.pw_name)
    try:
        if (read(private) != (given, 0o600)) if given else not os.path.exists(private):
            result["changed"] = True
            if module.check_mode:
                module.exit_json(**dict(result, public_key=foretold(module, given)))
            if not os.path.isdir(folder):
                os.mkdir(folder, 0o700)
            if given:
                put(module, private, given)
            else:
                make(module, private, "%s@%s" % (entry.pw_name, os.uname()[1]))
        result["public_key"] = public_half(module, private, GIVE_ANOTHER if given else MOVE_AWAY)
        if recorded(private + ".pub") != result["public_key"]:
            result["changed"] = True
            if not module.check_mode:
                with open(private + ".pub.part", "w") as target:
                    target.write(result["public_key"] + "\n")
                os.rename(private + ".pub.part", private + ".pub")
    except (IOError, OSError) as error:
        module.fail_json(msg="%s: %s. Mend that and run this again." % (error.filename or private, error.strerror or error))
    module.exit_json(**result)


def put(module, private, given):
    """The given key in its place, unless it cannot be used; then the one that is there stays."""
    draft = private + ".part"
    try:
        write(draft, given, 0o600)
        public_half(module, draft, GIVE_ANOTHER, "The key that was given for " + private)
        os.rename(draft, private)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


def make(module, private, comment):
    """A new pair under another name, moved to its place when it is whole."""
    draft = private + ".part"
    for leftover in (draft, draft + ".pub"):
        if os.path.exists(leftover):
            os.unlink(leftover)
    code, out, err = module.run_command(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", draft])
    if code != 0:
        module.fail_json(msg="ssh-keygen ended with status %d: %s" % (code, (err or out).strip()))
    os.rename(draft + ".pub", private + ".pub")
    os.rename(draft, private)


if __name__ == "__main__":
    main()
