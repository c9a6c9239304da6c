"""Tasks of Ansible that ask `mxcluster.entry` on a node: over the open connection, with no module that has to travel there first.

The base of such action plugins. It imports Ansible, as `mxcluster.controller_task` does.
"""
import pathlib
import shlex
from typing import Any, Dict, Optional, Tuple

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.common.parameters import remove_values
from ansible.parsing.plugin_docs import read_docstring
from ansible.plugins.action import ActionBase
from ansible.utils.unsafe_proxy import wrap_var

from . import contact, replies
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
        program, stdin = asking.program(asked["python"]), asking.request(asked, check)
        if asked.get("hello") is None:
            secrets = {str(value) for value in [asked.get("token"), *(asked.get("secret_env") or {}).values()] if value}
            told = self._enter(program, stdin, secret=bool(secrets))
        else:
            secrets = set()
            who, told = self.hello(asked["hello"], task_vars, program, stdin)
            if who.get("failed"):
                return dict(who, changed=False)
        answer = checked(asked, asking.result(asked, told["rc"], told["stdout"], told["stderr"]), task_vars["inventory_hostname"])
        if answer.get("msg"):  # an error may hold lines of a log
            answer["msg"] = remove_values(answer["msg"], secrets)
        return answer

    def hello(self, wanted: Json, task_vars: Json, program: str = "", stdin: Optional[bytes] = None) -> Tuple[Json, Json]:
        """(who one is on the node, or a failure with what to do; what `program` has answered there to what was in `stdin`).

        `wanted`: "users" of whom one has to be one, and "trainer", who is to train there.
        """
        host = task_vars["inventory_hostname"]
        address, port = str(task_vars.get("ansible_host") or host), int(task_vars.get("ansible_port") or 22)
        over_ssh = self._connection.transport in ("ssh", "paramiko")
        if self._connection.transport == "ssh":
            self._connection.set_option("reconnection_retries", 0)  # who cannot be reached is to be named at once
        pythons = contact.pythons_of(str(task_vars.get("ansible_python_interpreter") or "auto"))
        try:
            if program and not self._is_pipelining_enabled("new", False):  # who cannot be there can bring no file
                answer = self._enter(contact.hello(pythons), None)
            else:
                answer = self._enter("; ".join(filter(None, [contact.hello(pythons), program])), stdin)
        except AnsibleConnectionFailure as error:
            user = str(task_vars.get("ansible_user") or C.DEFAULT_REMOTE_USER or "you")
            return {"failed": True, "msg": contact.explain(str(error), host, address, port, user)}, {}
        told = contact.judged(host, address, pythons, wanted, answer)
        if told.get("failed"):
            return told, answer
        told["over_ssh"] = over_ssh
        problem = contact.root_trains(host, wanted.get("trainer"), told)
        if problem:
            return {"failed": True, "refused": True, "msg": problem}, answer
        if program and not self._is_pipelining_enabled("new", False):
            answer = self._enter(program, stdin)
        return told, answer

    def _enter(self, program: str, stdin: Optional[bytes], secret: bool = False) -> Json:
        """What the program on the node prints, over the open connection where that can carry what goes to its stdin.

        If there is something `secret` in that, Ansible does not show what comes back, at -vvv either.
        """
        if secret:
            self._play_context.no_log = True
        if stdin is None or self._is_pipelining_enabled("new", False):
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
