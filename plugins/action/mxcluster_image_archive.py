"""Fetch the archive of a container image from a node, and check the archive."""

DOCUMENTATION = r"""
---
module: mxcluster_image_archive
short_description: Fetch the archive of a container image from a node, and check it
description:
  - Fetches a file of C(docker save) or C(podman save) with the rights of the login user. The file
    takes at most half of the free space on the controller.
  - Fails if the archive holds another image than O(image) with the id O(id), or another name.
attributes:
  check_mode:
    description: In check mode the module changes nothing and reports the change that it would make.
    support: none
  diff_mode:
    description: With C(--diff) the module returns the contents before and after a change.
    support: none
author:
  - The mxcluster authors (@mxcluster)
options:
  src:
    description: The path of the archive on the node.
    type: path
    required: true
  dest:
    description: The path of the archive on the controller.
    type: path
    required: true
  image:
    description: The name of the image.
    type: str
    required: true
  id:
    description: The id of the image, from the node's C(image inspect).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Fetch the archive of the image
  mxcluster_image_archive:
    src: /opt/mxcluster/cache/image-node1.tar
    dest: .state/mine/container_image/image.tar
    image: localhost/mxcluster
    id: sha256:0f4b2d7c
"""

RETURN = r"""
bytes:
  description: The size of the archive.
  returned: success
  type: int
"""

import os
import shlex
from typing import Any, Dict

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from mxcluster.ansible.controller_task import spec_of
from mxcluster.ansible.fetching import files_of_at_most, free_bytes
from mxcluster.cluster import image_archive
from mxcluster.errors import MxclusterError

Json = Dict[str, Any]


class ActionModule(ActionBase):
    """Fetch the file `src` of the node to the file `dest`, and check the image in it."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> Json:
        """Run one task and return its result to Ansible."""
        result = super(ActionModule, self).run(tmp, task_vars)
        given = self.validate_argument_spec(spec_of(DOCUMENTATION))[1]
        try:
            size = self._fetch(given["src"], given["dest"])
            image_archive.check(given["dest"], given["image"], given["id"])
        except AnsibleConnectionFailure:
            raise
        except (AnsibleError, MxclusterError, OSError) as error:
            return dict(result, failed=True, msg=str(error))
        return dict(result, changed=True, bytes=size)

    def _fetch(self, source: str, target: str) -> int:
        """Fetch the node's file `source` to the file `target`, and return its size in bytes.

        Raises AnsibleError if the file is too large, or larger or smaller than the node has said.
        """
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        told = self._low_level_execute_command("stat -L -c %s -- " + shlex.quote(source))
        size = int(told["stdout"]) if told["stdout"].strip().isdecimal() else None
        if size is None:
            raise AnsibleError(
                "the node did not give the size of %s (%s): run provision.yml again"
                % (source, told.get("stderr", "").strip())
            )
        if 2 * size > free_bytes(folder):
            raise AnsibleError(
                "%s on the node has %d bytes, and the controller has only %d free bytes in %s, but "
                "must keep half of them: free space, or name a file of the image in "
                "container_image_archive" % (source, size, free_bytes(folder), folder)
            )
        with files_of_at_most(max(size, 1 << 20)):  # this process may also write to Ansible's log
            self._connection.fetch_file(source, target)
        if os.path.getsize(target) != size:
            raise AnsibleError(
                "%s: the node sent %d bytes instead of %d: run provision.yml again"
                % (source, os.path.getsize(target), size)
            )
        return size
