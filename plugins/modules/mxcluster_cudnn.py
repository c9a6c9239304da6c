#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Ansible module: cuDNN in the folder of a CUDA."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_cudnn
short_description: Unpack cuDNN's archive into the folder of a CUDA
description:
  - The version is read back from the header, which is the last file that is put in its place; so an installation that was
    interrupted is done again. Links stay links.
author:
  - The mxcluster authors
options:
  path:
    description: The folder of the CUDA, such as C(/usr/local/cuda-9.2).
    type: path
    required: true
  version:
    description: The version, of which the header tells the first three parts.
    type: str
    required: true
  archive:
    description: The archive as NVIDIA gives it out. Without one, the module only says what is there.
    type: path
"""

EXAMPLES = r"""
- name: Unpack cuDNN
  mxcluster_cudnn:
    path: /usr/local/cuda-9.2
    version: 7.6.5.32
    archive: /opt/mxcluster/cache/cudnn-9.2-linux-x64-v7.6.5.32.tgz
"""

RETURN = r"""
found:
  description: The version that is there now, null if there is none that is whole.
  returned: success
  type: str
done:
  description: Whether it is the one that was asked for.
  returned: success
  type: bool
"""

import os
import re
import shutil
import tarfile
import tempfile
import zlib

from ansible.module_utils.basic import AnsibleModule

HEADERS = ("cudnn_version.h", "cudnn.h")  # where cuDNN 8 and older ones have their version


def three(version):
    """'7.6.5' of '7.6.5.32', which is what the header tells."""
    return ".".join(version.split(".")[:3])


def version_in(folder):
    """The version in the headers of `folder`/include, if the library of that version is there with its links; else None."""
    numbers = {}
    for name in HEADERS:
        try:
            with open(os.path.join(folder, "include", name)) as source:
                numbers.update(re.findall(r"#define\s+CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s+(\d+)", source.read()))
        except (IOError, OSError):
            continue
    if len(numbers) < 3:
        return None
    version = "%(MAJOR)s.%(MINOR)s.%(PATCHLEVEL)s" % numbers
    library = os.path.join(folder, "lib64", "libcudnn.so." + numbers["MAJOR"])
    whole = os.path.islink(library) and os.path.basename(os.path.realpath(library)) == "libcudnn.so." + version
    return version if whole and os.path.exists(library) else None


def unpack(module, archive, folder, version):
    """Put the archive's files in their places, the headers last."""
    draft = tempfile.mkdtemp(prefix=".mxcluster-cudnn-", dir=folder)  # on the same disk: each file comes by a rename
    try:
        with tarfile.open(archive) as packed:
            members = [member for member in packed.getmembers()
                       if re.match(r"(\./)?cuda/(include|lib64)/[^/]+$", member.name)
                       and (member.isfile() or member.issym() and "/" not in member.linkname)]
            for member in members:
                member.uid, member.gid, member.uname, member.gname, member.mode = 0, 0, "", "", 0o644
            packed.extractall(draft, members)
        found = version_in(os.path.join(draft, "cuda"))
        if found != three(version):
            module.fail_json(msg="%s holds cuDNN %s, not %s: give the right file, or set cudnn_version"
                             % (archive, found, version))
        for part in ("lib64", "include"):
            names = os.listdir(os.path.join(draft, "cuda", part))
            for name in sorted(names, key=lambda name: (name in HEADERS, name)):
                target = os.path.join(folder, part)
                if not os.path.isdir(target):
                    os.makedirs(target)
                os.rename(os.path.join(draft, "cuda", part, name), os.path.join(target, name))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def main():
    """Run the module."""
    module = AnsibleModule(argument_spec=dict(path=dict(type="path", required=True), version=dict(type="str", required=True),
                                              archive=dict(type="path")), supports_check_mode=True)
    folder, version, archive = (module.params[name] for name in ("path", "version", "archive"))
    os.umask(0o022)
    before = version_in(folder)
    changed = bool(archive) and before != three(version)
    if changed and not module.check_mode:
        try:
            unpack(module, archive, folder, version)
        except (tarfile.TarError, EOFError, zlib.error, IOError, OSError) as error:
            if getattr(error, "errno", None) is None:  # what unpacking says, not the system
                module.fail_json(msg="%s is not a whole archive (%s): remove it and run this again" % (archive, error))
            module.fail_json(msg="%s: %s. The next run does it again." % (error.filename or folder, error.strerror or error))
    found = version_in(folder)
    module.exit_json(changed=changed, found=found, done=found == three(version))


if __name__ == "__main__":
    main()
