"""Transfer files to a node, where the module mxcluster_file copies the files to their paths.

The module copies a file with the rights of the user that owns the folder. So root never opens a
path in which another user can place a link. ansible.builtin.copy would open such a path as root.
"""

import os
from typing import Dict, Mapping, NoReturn, Optional, Sequence, Tuple

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from mxcluster.ansible import arguments
from mxcluster.ansible.edge import TaskResult, TaskVars
from mxcluster.ansible.module_task import run_module
from mxcluster.errors import BadInput, of_system
from mxcluster.file_io import sha256
from mxcluster.model import names
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import one_of, optional, table, whole


class Digest(Record):
    """The wanted content and permissions of a file."""

    bytes: int = field(whole())
    sha256: str = field(names.digest)
    mode: Optional[str] = field(optional(arguments.text), default=None)
    """In octal; None for any permissions."""


Digests = Mapping[str, Digest]  # {path relative to a folder: the file's digest}


class Arguments(Record, strict=True):
    """The arguments of the task, and of the module, whose argument spec has more rules."""

    path: str = field(arguments.text)
    """On the node."""
    state: str = field(one_of("file", "directory", "absent"), default="file")
    content: Optional[str] = field(optional(arguments.text), default=None)
    """In base64."""
    src: Optional[str] = field(optional(arguments.text), default=None)
    """A file or folder on the controller; for the module its copy on the node."""
    files: Optional[Digests] = field(
        optional(table(names.file_name, record(Digest), 1000000)), default=None
    )
    """The files of a folder, from this plugin."""
    mode: Optional[str] = field(optional(arguments.text), default=None)
    """In octal."""
    roots: Sequence[str] = field(arguments.texts, default=[])
    """Folders that only root may be able to change."""
    user: str = field(arguments.text, default="")
    """The user whose rights root uses."""


class ActionModule(ActionBase):
    """Transfer the file `src` to a temporary folder on the node, and run mxcluster_file there."""

    TRANSFERS_FILES = False  # most calls transfer no file and need no temporary folder

    def run(self, tmp: object = None, task_vars: TaskVars = None) -> TaskResult:
        """Run one task and return its result to Ansible."""
        result = super(ActionModule, self).run(tmp, task_vars)
        try:
            given = arguments.decode(Arguments, "mxcluster_file", self._task.args)
        except BadInput as refusal:
            return dict(result, failed=True, msg=str(refusal))
        source = given.src
        try:
            if not source:
                return dict(result, **self._ask(given, task_vars))
            if os.path.isdir(source):
                return dict(result, **self._folder(given, task_vars))
            if self._task.check_mode:
                return dict(result, **self._compare(given, task_vars))
            return dict(result, **self._ask(given.replaced(src=self._bring(source)), task_vars))
        except (AnsibleError, OSError) as error:
            lost = isinstance(error, AnsibleConnectionFailure)
            step = "copy %s to" % source if source else "write %s on" % given.path
            reason = of_system(error) if isinstance(error, OSError) else error
            msg = "cannot %s the node: %s. Correct the cause, then run the playbook again"
            state = {"unreachable" if lost else "failed": True}
            return dict(result, msg=msg % (step, reason), **state)

    def _compare(self, given: Arguments, task_vars: TaskVars) -> TaskResult:
        """Compare the file `src` with the node's file for check mode. The method sends no file.

        Returns:
            {"changed": True if the content or the permissions differ, "path"}, or a failure.
        """
        folder, name = os.path.split(given.path)
        wanted = digest(given.src).replaced(mode=given.mode or "0644")
        found = self._ask(
            given.replaced(src=None, state="directory", path=folder or ".", files={name: wanted}),
            task_vars,
        )
        changed = bool(found.get("changed") or found.get("lacking"))
        return dict(found, changed=changed, path=given.path)

    def _folder(self, given: Arguments, task_vars: TaskVars) -> TaskResult:
        """Transfer the files of the folder `src` that the node lacks.

        Returns:
            The result of the task. After the first failed file the method stops and returns the
            failure.
        """
        source = given.src
        files = listing(source)
        found = self._ask(given.replaced(src=None, state="directory", files=files), task_vars)
        # The node returns the names of the missing files. A hostile node could request any file of
        # the controller, so the controller sends only files of the listing.
        wanted = set(found.get("lacking") or ())
        lacking = [name for name in files if name in wanted]
        for name in lacking if not self._task.check_mode else []:
            target = os.path.join(given.path, name)
            brought = self._bring(os.path.join(source, name))
            answer = self._ask(given.replaced(state="file", path=target, src=brought), task_vars)
            if answer.get("failed") or answer.get("unreachable"):
                return answer
        return dict(found, changed=bool(found.get("changed") or lacking))

    def _bring(self, source: str) -> str:
        """Transfer the file `source` to the node and return the path of the copy on the node.

        Ansible removes the copy at the end of the task.
        """
        if self._connection._shell.tmpdir is None:
            self._make_tmp_path()
        there = self._connection._shell.join_path(self._connection._shell.tmpdir, "source")
        self._transfer_file(source, there)
        self._fixup_perms2((self._connection._shell.tmpdir, there))
        return there

    def _ask(self, given: Arguments, task_vars: TaskVars) -> TaskResult:
        return run_module(self, "mxcluster_file", given.encode(), task_vars)


def digest(path: str) -> Digest:
    """Return the digest of the file `path`."""
    return Digest(bytes=os.path.getsize(path), sha256=sha256(path))


def listing(folder: str) -> Dict[str, Digest]:
    """Return {relative path: digest} of all files in `folder` and in linked folders.

    Raises:
        AnsibleError: The folder contains a broken link, a special file, or a link to one of the
            folders above the link.
        OSError: A folder or a file is unreadable.
    """
    found: Dict[str, Digest] = {}
    above: Dict[str, Tuple[str, ...]] = {}
    for here, folders, files in os.walk(folder, followlinks=True, onerror=_raise):
        above[here] = above.get(os.path.dirname(here), ()) + (os.path.realpath(here),)
        folders.sort()
        if above[here][-1] in above[here][:-1]:
            raise AnsibleError(
                "the link %s points to a folder above the link: remove this link" % here
            )
        for name in files:
            path = os.path.join(here, name)
            if not os.path.isfile(path):
                raise AnsibleError("%s is a special file or a broken link: remove this file" % path)
            found[os.path.relpath(path, folder)] = digest(path)
    return found


def _raise(error: OSError) -> NoReturn:
    """Raise the OSError `error` of os.walk, which by default skips an unreadable folder."""
    raise error
