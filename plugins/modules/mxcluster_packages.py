#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Doorway to mxcluster.packages on the controller."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_packages
short_description: Add the packages that scripts need to what M(mxcluster_env) installs
description:
  - Chooses a wheel for each package and for all that it needs, for the Python of one node, fetches what the store lacks, and
    keeps the choice in the store. The same wish asks no package index again.
  - Refuses a package without a wheel, and one that would bring another MXNet or numpy.
  - Runs on the controller, under a Python interpreter that has mxcluster and pip. Runs at the same time wait for each other.
author:
  - The mxcluster authors
options:
  packages:
    description: A list of names with or without versions, or the path of a requirements file on the controller.
    type: raw
    required: true
  environment:
    description: The C(builds) and C(hashes) that M(mxcluster_env) takes.
    type: dict
    required: true
  python:
    description: The version of the node's Python, such as V(3.11).
    type: str
    required: true
  store:
    description: The folder of the wheels that were fetched.
    type: path
    required: true
  cwd:
    description: The folder at which a relative path begins.
    type: path
    required: true
notes:
  - In check mode nothing is fetched; a choice that was not made before is told as changed, and RV(builds) are those of
    O(environment).
"""

EXAMPLES = r"""
- name: Choose the wheels of the packages that scripts need
  mxcluster_packages:
    packages: [six, tqdm==4.66.1]
    environment: "{{ environment }}"
    python: "3.11"
    store: .state/cache/wheels
    cwd: "{{ lookup('ansible.builtin.env', 'PWD') }}"
  delegate_to: localhost
"""

RETURN = r"""
builds:
  description: The builds with the wheels of the packages.
  returned: success
  type: list
  elements: dict
hashes:
  description: The hashes with those of the packages.
  returned: success
  type: dict
"""

import os
import traceback

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from mxcluster import packages, wheels
    from mxcluster.errors import MxclusterError
    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            packages=dict(type="raw", required=True),
            environment=dict(type="dict", required=True),
            python=dict(type="str", required=True),
            store=dict(type="path", required=True),
            cwd=dict(type="path", required=True),
        ),
        supports_check_mode=True,
    )
    if IMPORT_ERROR:
        module.fail_json(msg=missing_required_lib("mxcluster") + ". On the controller: make venv, then "
                             "source .venv/bin/activate", exception=IMPORT_ERROR)
    given = module.params
    environment, python, store = given["environment"], given["python"], os.path.abspath(given["store"])
    try:
        wanted = packages.wishes(given["packages"], given["cwd"])
        found = packages.extended(environment, wanted, python, store, known_only=True)
        changed = found is None
        if changed and not module.check_mode:
            with wheels.locked(store):
                found = packages.extended(environment, wanted, python, store)
    except MxclusterError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg="%s on the controller: %s. What was half made is made anew by the next run."
                             % (error.filename or store, error.strerror or error))
    found = found or environment
    module.exit_json(changed=changed, builds=found["builds"], hashes=found["hashes"])


if __name__ == "__main__":
    main()
