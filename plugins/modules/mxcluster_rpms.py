#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: what rpm knows of packages and of RPM files."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_rpms
short_description: Ask rpm which packages are missing, and whether RPM files are signed by whom it trusts
description:
  - Asks, and changes nothing.
  - An RPM file must be whole and signed with a key that rpm has imported, unless its sha256 was checked before.
author:
  - The mxcluster authors
options:
  packages:
    description: The version that each package must have, by name; empty for any.
    type: dict
    default: {}
  files:
    description: RPM files with packages of a repository in them, each with C(path) and C(trusted), if it needs no signature.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Ask what is missing
  mxcluster_rpms:
    packages: {cuda-toolkit-9-2: "", cuda-cublas-9-2: 9.2.148.1}
  register: asked
"""

RETURN = r"""
lacking:
  description: What yum has to be told to install, C(name) or C(name-version).
  returned: success
  type: list
  elements: str
folders:
  description: For each of O(files) the folder that its packages will lie in.
  returned: success
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule


def lacking(module, packages):
    """What is not installed, or in another version, as yum wants to be told."""
    found = []
    for name, version in sorted(packages.items()):
        # Packages of the same name can stand beside each other (kernel-devel); only the last line is the newest.
        code, out, _ = module.run_command(["rpm", "-q", "--qf", "%{VERSION}\\n", name])
        if code != 0 or (version and out.split()[-1] != version):
            found.append("%s-%s" % (name, version) if version else name)
    return found


def signed(said):
    """Whether `rpm -K` has found a signature, and all of it well. An unsigned file is called OK by it as well."""
    words = said.rsplit(":", 1)[-1].lower().replace("(", " ").replace(")", " ").split()
    return "not" not in words and "ok" in words and bool({"pgp", "gpg", "signatures", "rsa", "dsa"} & set(words))


def check(module, path):
    """Fails the module unless the file is whole and signed with an imported key."""
    code, out, err = module.run_command(["rpm", "-K", path], environ_update=dict(LC_ALL="C", LANG="C"))
    said = (out + err).strip()
    if code != 0 or not signed(out.strip()):
        module.fail_json(msg="%s is not what NVIDIA has signed: it is damaged, unsigned or signed by others (rpm -K says: "
                             "%s). Nothing was installed from it. Remove it from the controller's store and run this again; if "
                             "it is right all the same, give its digest in nvidia_sha256." % (path, said))


def folder(module, path):
    """The folder that the packages in a repository's RPM will lie in."""
    code, out, err = module.run_command(["rpm", "-qpl", path])
    if code != 0:
        module.fail_json(msg="%s is no RPM: %s" % (path, err.strip()))
    folders = sorted({os.path.dirname(line) for line in out.splitlines() if line.endswith(".rpm")}, key=len)
    if not folders:
        module.fail_json(msg="%s holds no packages, so it is not one of NVIDIA's local repositories" % path)
    return folders[0]


def main():
    """Run the module."""
    module = AnsibleModule(argument_spec=dict(packages=dict(type="dict", default={}),
                                              files=dict(type="list", elements="dict", default=[])), supports_check_mode=True)
    for one in module.params["files"]:
        if not one.get("trusted"):
            check(module, one["path"])
    module.exit_json(changed=False, lacking=lacking(module, module.params["packages"]),
                     folders=[folder(module, one["path"]) for one in module.params["files"]])


if __name__ == "__main__":
    main()
