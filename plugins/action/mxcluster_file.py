"""Beside the module of the same name, on the controller: brings the file that it is to copy.

Unlike ansible.builtin.copy, the file is put in its place by the module, as the user whose folder that is. Root never opens a path
that somebody else can lay a link into.
"""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Runs the module, with `src` where it has been brought to: Ansible's own temporary folder on the node."""

    TRANSFERS_FILES = False  # most calls bring nothing, and need no folder for it

    def run(self, tmp=None, task_vars=None):
        result = super(ActionModule, self).run(tmp, task_vars)
        arguments = dict(self._task.args)
        if not arguments.get("src"):
            return dict(result, **self._ask(arguments, task_vars))
        if self._task.check_mode:
            return dict(result, changed=True, path=arguments.get("path"))
        try:
            arguments["src"] = self._bring(arguments["src"])
        except AnsibleError as error:
            return dict(result, failed=True, msg="%s cannot be brought: %s" % (arguments["src"], error))
        return dict(result, **self._ask(arguments, task_vars))

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
