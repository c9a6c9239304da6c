#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Doorway to mxcluster.datasets.write_digits."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_digits
short_description: The handwritten digits, as the nodes need them
description:
  - Makes the file digits.npz from the data that scikit-learn brings, once, and returns it.
  - Runs on the controller; the nodes need no scikit-learn. M(mxcluster_file) carries the file to them.
author:
  - The mxcluster authors
options:
  cache_dir:
    description:
      - Where the file is kept, under a name that changes with what makes it. In check mode nothing is kept.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Make the digits
  mxcluster_digits:
    cache_dir: .state/local/cache
  delegate_to: localhost
  run_once: true
  register: digits
"""

RETURN = r"""
content:
  description: The file, in base64.
  returned: success
  type: str
"""

import base64
import hashlib
import os
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule


def file_name(datasets):
    """A name for what this mxcluster.datasets and this scikit-learn make: importing the latter takes seconds."""
    from importlib.metadata import version
    with open(datasets.__file__, "rb") as source:
        makers = source.read() + version("scikit-learn").encode("ascii")
    return "digits-%s.npz" % hashlib.sha256(makers).hexdigest()[:12]


def digits(datasets, cache_dir, check_mode):
    """(content, whether the cache lacked it)."""
    path = os.path.join(cache_dir, file_name(datasets))
    missing = not os.path.exists(path)
    temporary = None
    try:
        if missing and check_mode:
            temporary = tempfile.mkdtemp()
            path = os.path.join(temporary, "digits.npz")
        if missing:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            datasets.write_digits(path)
        with open(path, "rb") as source:
            return source.read(), missing
    finally:
        if temporary:
            shutil.rmtree(temporary)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(cache_dir=dict(type="path", required=True)),
        supports_check_mode=True,
    )
    try:
        from mxcluster import datasets
        content, changed = digits(datasets, module.params["cache_dir"], module.check_mode)
    except ImportError as error:
        module.fail_json(msg="the controller's Python cannot make the digits (%s): run `make venv`" % error)
    except OSError as error:
        module.fail_json(msg="%s: %s" % (error.filename or module.params["cache_dir"], error.strerror or error))
    module.exit_json(changed=changed, content=base64.b64encode(content).decode("ascii"))


if __name__ == "__main__":
    main()
