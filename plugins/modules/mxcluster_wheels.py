#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Doorway to mxcluster.wheels on the controller."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_wheels
short_description: Fetch the wheels that nodes need, once, and pack them for the way
description:
  - Takes what M(mxcluster_env) says that the nodes need, fetches with pip what the store lacks, checks every file against
    its sha256, and packs one tar file for each different need.
  - Runs on the controller, under a Python interpreter that has mxcluster and pip. Runs at the same time wait for each other.
author:
  - The mxcluster authors
options:
  needs:
    description: For each node the RV(mxcluster_env#module:needs) of M(mxcluster_env).
    type: list
    elements: dict
    required: true
  store:
    description: The folder of the wheels that were fetched.
    type: path
    required: true
  folder:
    description: The folder of the tar files.
    type: path
    required: true
notes:
  - In check mode nothing is fetched or packed.
"""

EXAMPLES = r"""
- name: Fetch what the nodes lack
  mxcluster_wheels:
    needs: "{{ ansible_play_hosts | map('extract', hostvars, ['asked', 'needs']) }}"
    store: .state/cache/wheels
    folder: .state/local/carry
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
archives:
  description: The paths of the tar files by the digest of the need.
  returned: success
  type: dict
"""

import os
import traceback

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from mxcluster import wheels
    from mxcluster.errors import MxclusterError
    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            needs=dict(type="list", elements="dict", required=True),
            store=dict(type="path", required=True),
            folder=dict(type="path", required=True),
        ),
        supports_check_mode=True,
    )
    if IMPORT_ERROR:
        module.fail_json(msg=missing_required_lib("mxcluster") + ". On the controller: make venv, then "
                             "source .venv/bin/activate", exception=IMPORT_ERROR)
    needs = [need for need in module.params["needs"] if need["requirements"]]
    store = os.path.abspath(module.params["store"])
    if not needs or module.check_mode:
        module.exit_json(changed=bool(needs), archives={})
    try:
        with wheels.locked(store):
            found = wheels.archives(store, needs, os.path.abspath(module.params["folder"]))
    except MxclusterError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg="%s on the controller: %s. What was half made is made anew by the next run."
                             % (error.filename or store, error.strerror or error))
    module.exit_json(changed=True, archives=found)


if __name__ == "__main__":
    main()
