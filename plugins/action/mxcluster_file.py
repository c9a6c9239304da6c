"""Beside the module of the same name, on the controller: brings the files that it is to copy.

Unlike ansible.builtin.copy, a file is put in its place by the module, as the user whose folder that is. Root never opens a path
that somebody else can lay a link into.
"""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import hashlib
import os

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Runs the module, with `src` where it has been brought to: Ansible's own temporary folder on the node."""

    TRANSFERS_FILES = False  # most calls bring nothing, and need no folder for it

    def run(self, tmp=None, task_vars=None):
        result = super(ActionModule, self).run(tmp, task_vars)
        arguments = dict(self._task.args)
        source = arguments.get("src")
        try:
            if not source:
                return dict(result, **self._ask(arguments, task_vars))
            if os.path.isdir(source):
                return dict(result, **self._folder(arguments, task_vars))
            if self._task.check_mode:
                return dict(result, changed=True, path=arguments.get("path"))
            return dict(result, **self._ask(dict(arguments, src=self._bring(source)), task_vars))
        except (AnsibleError, OSError) as error:
            return dict(result, failed=True, msg="%s cannot be brought: %s" % (source, error))

    def _folder(self, arguments, task_vars):
        """The result of bringing those files of a folder that the node lacks, one after the other."""
        source = arguments.pop("src")
        files = listing(source)
        asked = self._ask(dict(arguments, state="directory", files=files), task_vars)
        # What a node lacks, it says itself. It could name any file of the controller.
        told = asked.get("lacking")
        wanted = {name for name in told if isinstance(name, str)} if isinstance(told, list) else set()
        lacking = [name for name in files if name in wanted]
        for name in lacking if not self._task.check_mode else []:
            brought = self._bring(os.path.join(source, name))
            answer = self._ask(dict(arguments, state="file", path=os.path.join(arguments["path"], name), src=brought), task_vars)
            if answer.get("failed"):
                return answer
        return dict(asked, changed=bool(asked.get("changed") or lacking))

    def _bring(self, source):
        """Where the file is on the node, until the task has ended."""
        if self._connection._shell.tmpdir is None:
            self._make_tmp_path()
        there = self._connection._shell.join_path(self._connection._shell.tmpdir, "source")
        self._transfer_file(source, there)
        self._fixup_perms2((self._connection._shell.tmpdir, there))
        return there

    def _ask(self, arguments, task_vars):
        return self._execute_module(module_name="mxcluster_file", module_args=arguments, task_vars=task_vars)


def listing(folder):
    """{name in the folder: {"bytes", "sha256"}} of all files in it, behind links too.

    AnsibleError names what is no file, and what leads in a circle.
    """
    found, above = {}, {}
    for here, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        above[here] = above.get(os.path.dirname(here), ()) + (os.path.realpath(here),)
        folders.sort()
        if above[here][-1] in above[here][:-1]:
            raise AnsibleError("the link %s leads to a folder that it lies in: remove it" % here)
        for name in names:
            path = os.path.join(here, name)
            if not os.path.isfile(path):
                raise AnsibleError("%s is no file, or a link to none: remove it" % path)
            found[os.path.relpath(path, folder)] = {"bytes": os.path.getsize(path), "sha256": _sha256(path)}
    return found


def _sha256(path):
    """The digest of a file, in hexadecimal."""
    seen = hashlib.sha256()
    with open(path, "rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            seen.update(piece)
    return seen.hexdigest()


def _raise(error):
    """A folder that cannot be read is an error, no empty folder."""
    raise error
