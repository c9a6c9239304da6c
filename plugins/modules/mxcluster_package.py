#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Doorway to mxcluster.package."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_package
short_description: Pack the Python package mxcluster for the nodes
description:
  - Packs the package that the running Python imports as C(mxcluster) into one zip file and returns it; writes nothing.
  - Runs on the controller. M(mxcluster_file) carries the zip file to the nodes.
author:
  - The mxcluster authors
"""

EXAMPLES = r"""
- name: Pack the package
  mxcluster_package:
  delegate_to: localhost
  run_once: true
  register: node_package
"""

RETURN = r"""
name:
  description: A file name that holds a digest of the content.
  returned: success
  type: str
  sample: mxcluster-0f343b0931126.zip
content:
  description: The zip file, in base64.
  returned: success
  type: str
"""

import base64

from ansible.module_utils.basic import AnsibleModule


def main():
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        from mxcluster import package
    except ImportError as error:
        module.fail_json(msg="the controller's Python cannot import mxcluster (%s): run `make venv`" % error)
    name, content = package.archive()
    module.exit_json(changed=False, name=name, content=base64.b64encode(content).decode("ascii"))


if __name__ == "__main__":
    main()
