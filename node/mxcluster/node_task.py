"""Tasks of Ansible that ask `mxcluster.entry` on a node: over the open connection, with no module that has to travel there first.

The base of such action plugins. It imports Ansible, as `mxcluster.controller_task` does.
"""
import pathlib
import shlex
from typing import Any, Dict

from ansible.module_utils.common.parameters import remove_values
from ansible.parsing.plugin_docs import read_docstring
from ansible.plugins.action import ActionBase
from ansible.utils.unsafe_proxy import wrap_var

from . import replies
from .controller_task import arguments_of
from .entry import asking
from .errors import MxclusterError

Json = Dict[str, Any]
DOCUMENTED = pathlib.Path(__file__).resolve().parents[2] / "plugins" / "modules" / "mxcluster_node.py"
SPEC = arguments_of(read_docstring(str(DOCUMENTED))["doc"])


class NodeTask(ActionBase):
    """An action plugin that asks a node."""

    def ask(self, asked: Json, task_vars: Json) -> Json:
        """The result of the arguments of mxcluster_node, all of them that have a default or are needed."""
        command, check = asked["command"], self._task.check_mode
        if check and command not in asking.READING:
            return asking.of_check_mode(command)
        told = self._enter(asking.program(asked["python"]), asking.request(asked, check))
        answer = asking.result(asked, told["rc"], told["stdout"], told["stderr"])
        secret = {str(value) for value in [asked.get("token"), *(asked.get("secret_env") or {}).values()] if value}
        return checked(asked, remove_values(answer, secret), task_vars["inventory_hostname"])

    def _enter(self, program: str, stdin: bytes) -> Json:
        """What the program on the node prints, over the open connection where that can carry what goes to its stdin."""
        if self._is_pipelining_enabled("new", False):
            return self._low_level_execute_command(program, in_data=stdin)
        folder = self._make_tmp_path()
        try:
            path = self._connection._shell.join_path(folder, "asked.json")
            self._transfer_data(path, stdin)
            self._fixup_perms2([folder, path], execute=False)
            return self._low_level_execute_command("%s < %s" % (program, shlex.quote(path)))
        finally:
            self._remove_tmp_path(folder, force=True)


def completed(given: Json) -> Json:
    """Arguments with the defaults of those that are not given."""
    defaults = {name: option["default"] for name, option in SPEC.items() if "default" in option}
    return dict(defaults, **given)


def checked(asked: Json, answer: Json, host: str) -> Json:
    """The result; one of a node that has answered what cannot be has failed, and says which field it is."""
    if any(answer.get(name) for name in ("failed", "unreachable", "skipped")) or "msg" in answer:
        return answer
    try:
        found = replies.check(asked["command"], host, answer, replies.job_of(asked))
    except MxclusterError as refusal:
        found = {"failed": True, "changed": False, "msg": str(refusal)}
    return wrap_var(found)  # as Ansible has: no template in it is ever carried out
