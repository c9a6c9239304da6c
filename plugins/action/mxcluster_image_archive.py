"""Fetch the archive of a container image from a node, and check the archive.

The login user reads the file of `docker save` or `podman save`, which may take at most half of the
free space on the controller. The task fails if the archive holds another image, id or name. The
result has the size of the archive as `bytes`.
"""

import os
import shlex

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from mxcluster.ansible import arguments
from mxcluster.ansible.edge import TaskResult, TaskVars
from mxcluster.ansible.fetching import files_of_at_most, free_bytes
from mxcluster.cluster import image_archive
from mxcluster.errors import MxclusterError
from mxcluster.model.record import Record, field


class Arguments(Record, strict=True):
    """The arguments of the task."""

    src: str = field(arguments.path)
    """The archive on the node."""
    dest: str = field(arguments.path)
    """The archive on the controller."""
    image: str = field(arguments.text)
    """The name of the image."""
    id: str = field(arguments.text)
    """The id of the image, from the node's `image inspect`."""


class ActionModule(ActionBase):
    """Fetch the file `src` of the node to the file `dest`, and check the image in it."""

    TRANSFERS_FILES = False

    def run(self, tmp: object = None, task_vars: TaskVars = None) -> TaskResult:
        """Run one task and return its result to Ansible."""
        result = super(ActionModule, self).run(tmp, task_vars)
        try:
            given = arguments.decode(Arguments, "mxcluster_image_archive", self._task.args)
            size = self._fetch(given.src, given.dest)
            image_archive.check(given.dest, given.image, given.id)
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
        found = self._low_level_execute_command("stat -L -c %s -- " + shlex.quote(source))
        if not found["stdout"].strip().isdecimal():
            raise AnsibleError(
                "the node did not give the size of %s (%s): run provision.yml again"
                % (source, found.get("stderr", "").strip())
            )
        size = int(found["stdout"])
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
