#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Doorway to mxcluster.archives on the controller."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_archives
short_description: Fetch large files once for all nodes
description:
  - Fetches what the store lacks, goes on where a connection was cut, and checks each file against its sha256, if it is known.
  - Runs on the controller, under a Python interpreter that has mxcluster. Runs at the same time wait for each other.
author:
  - The mxcluster authors
options:
  files:
    description: The files, each with C(url), C(name) in the store, and C(sha256), which may be empty. Doubles are fetched once.
    type: list
    elements: dict
    required: true
  store:
    description: The folder of the files that were fetched.
    type: path
    required: true
notes:
  - In check mode nothing is fetched.
"""

EXAMPLES = r"""
- name: Fetch them
  mxcluster_archives:
    files:
      - url: https://example.org/cudnn.tgz
        name: cudnn.tgz
        sha256: a2a2c7a8ba7b16d323b651766ee37dcfdbc2b50d920f73f8fde85005424960e4
    store: .state/cache/archives
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
fetched:
  description: The names of the files that were fetched now.
  returned: success
  type: list
  elements: str
"""

import os
import traceback

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from mxcluster import archives, wheels
    from mxcluster.errors import MxclusterError
    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()


def main():
    """Run the module."""
    module = AnsibleModule(argument_spec=dict(files=dict(type="list", elements="dict", required=True),
                                              store=dict(type="path", required=True)), supports_check_mode=True)
    if IMPORT_ERROR:
        module.fail_json(msg=missing_required_lib("mxcluster") + ". On the controller: make venv, then "
                             "source .venv/bin/activate", exception=IMPORT_ERROR)
    files = {one["name"]: one for one in module.params["files"]}
    store = os.path.abspath(module.params["store"])
    missing = [one["name"] for one in archives.lacking(store, files.values())]
    try:
        if files and not module.check_mode:
            with wheels.locked(store):
                for one in files.values():
                    archives.provide(store, one)
    except MxclusterError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg="%s on the controller: %s. What was fetched so far is kept, and the next run goes on with it."
                             % (error.filename or store, error.strerror or error))
    module.exit_json(changed=bool(missing), fetched=missing)


if __name__ == "__main__":
    main()
