"""Transfer files to a node, where the module mxcluster_file copies the files to their paths.

The module copies a file with the rights of the user that owns the folder. So root never opens a
path in which another user can place a link. ansible.builtin.copy would open such a path as root.
"""

import os
from typing import Any, Dict, NoReturn, Tuple

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from mxcluster.ansible.module_task import run_module
from mxcluster.file_io import digest

Json = Dict[str, Any]


class ActionModule(ActionBase):
    """Transfer the file `src` to a temporary folder on the node, and run mxcluster_file there."""

    TRANSFERS_FILES = False  # most calls transfer no file and need no temporary folder

    def run(self, tmp: Any = None, task_vars: Any = None) -> Json:
        """Run one task and return its result to Ansible."""
        result = super(ActionModule, self).run(tmp, task_vars)
        arguments = dict(self._task.args)
        source = arguments.get("src")
        try:
            if not source:
                return dict(result, **self._ask(arguments, task_vars))
            if os.path.isdir(source):
                return dict(result, **self._folder(arguments, task_vars))
            if self._task.check_mode:
                return dict(result, **self._compare(arguments, task_vars))
            return dict(result, **self._ask(dict(arguments, src=self._bring(source)), task_vars))
        except (AnsibleError, OSError) as error:
            lost = isinstance(error, AnsibleConnectionFailure)
            return dict(
                result,
                msg="cannot %s: %s. Correct the cause, then run the playbook again"
                % (
                    "copy %s to the node" % source
                    if source
                    else "write %s on the node" % arguments.get("path"),
                    "%s: %s" % (error.filename, error.strerror)
                    if isinstance(error, OSError) and error.filename
                    else error,
                ),
                **{"unreachable" if lost else "failed": True},
            )

    def _compare(self, arguments: Json, task_vars: Json) -> Json:
        """Compare the file `src` with the node's file for check mode. The method sends no file.

        Args: `arguments` of the module, with the file as "src".

        Returns:
            {"changed": True if the content or the permissions differ, "path"}, or a failure.
        """
        folder, name = os.path.split(arguments["path"])
        wanted = dict(digest(arguments["src"]), mode=str(arguments.get("mode") or "0644"))
        given = {key: value for key, value in arguments.items() if key != "src"}
        asked = self._ask(
            dict(given, state="directory", path=folder or ".", files={name: wanted}), task_vars
        )
        changed = bool(asked.get("changed") or asked.get("lacking"))
        return dict(asked, changed=changed, path=arguments["path"])

    def _folder(self, arguments: Json, task_vars: Json) -> Json:
        """Transfer the files of the folder arguments["src"] that the node lacks.

        Args: `arguments` the options of the module mxcluster_file.

        Returns:
            The result of the task. After the first failed file the method stops and returns the
            failure.
        """
        source = arguments.pop("src")
        files = listing(source)
        asked = self._ask(dict(arguments, state="directory", files=files), task_vars)
        # The node returns the names of the missing files. A hostile node could request any file of
        # the controller, so the controller sends only files of the listing.
        wanted = set(asked.get("lacking") or ())
        lacking = [name for name in files if name in wanted]
        for name in lacking if not self._task.check_mode else []:
            brought = self._bring(os.path.join(source, name))
            answer = self._ask(
                dict(
                    arguments, state="file", path=os.path.join(arguments["path"], name), src=brought
                ),
                task_vars,
            )
            if answer.get("failed") or answer.get("unreachable"):
                return answer
        return dict(asked, changed=bool(asked.get("changed") or lacking))

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

    def _ask(self, arguments: Json, task_vars: Json) -> Json:
        return run_module(self, "mxcluster_file", arguments, task_vars)


def listing(folder: str) -> Dict[str, Json]:
    """Return {relative path: {"bytes", "sha256"}} of all files in `folder` and in linked folders.

    Raises:
        AnsibleError: The folder contains a broken link, a special file, or a link to one of the
            folders above the link.
        OSError: A folder or a file is unreadable.
    """
    found: Dict[str, Json] = {}
    above: Dict[str, Tuple[str, ...]] = {}
    for here, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        above[here] = above.get(os.path.dirname(here), ()) + (os.path.realpath(here),)
        folders.sort()
        if above[here][-1] in above[here][:-1]:
            raise AnsibleError(
                "the link %s points to a folder above the link: remove this link" % here
            )
        for name in names:
            path = os.path.join(here, name)
            if not os.path.isfile(path):
                raise AnsibleError("%s is a special file or a broken link: remove this file" % path)
            found[os.path.relpath(path, folder)] = digest(path)
    return found


def _raise(error: OSError) -> NoReturn:
    """Raise the OSError `error` of os.walk, which by default skips an unreadable folder."""
    raise error
