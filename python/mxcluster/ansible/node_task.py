"""Base of action plugins that run `mxcluster.entry` on a node over the open connection.

Ansible copies no module to the node for such a plugin. This module imports Ansible, as
`mxcluster.ansible.controller_task` does.
"""

import getpass
import shlex
from typing import Any, Dict, List, Optional, Tuple

from ansible import __version__ as CORE
from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.parameters import remove_values
from ansible.plugins.action import ActionBase
from ansible.utils.unsafe_proxy import wrap_var

from mxcluster.ansible import contact, node_program
from mxcluster.ansible.node_arguments import Connection
from mxcluster.errors import MxclusterError
from mxcluster.model.host_variables import of_host
from mxcluster.model.protocol import Request

Json = Dict[str, Any]
OWN = ("asked", "changed", "ended", "has")  # fields of `node_program.result`
NO_DATA = b"\n"  # for a command that reads nothing; Ansible takes no bytes for no stdin


def oldest_python(core: str) -> Tuple[int, ...]:
    """Return the oldest Python for modules of ansible-core `core`, as (major, minor)."""
    if core.startswith("2.16."):
        return (2, 7)
    # Under 2.16 no other code imports `basic`, and this import takes 30 ms in each fork.
    from ansible.module_utils import basic

    return tuple(getattr(basic, "_PY_MIN", (2, 7)))


class NodeTask(ActionBase):  # type: ignore[misc]  # ansible has no types
    """Base of an action plugin that runs commands of `mxcluster.entry` on a node."""

    def ask(
        self,
        python: str,
        request: Request,
        task_vars: Json,
        connection: Optional[Connection] = None,
    ) -> Json:
        """Run a command on the node and return the checked answer as the result of a task.

        In check mode the method runs no command that changes the node.

        Args:
            python: the path of the Python on the node.
            request: the command.
            task_vars: Ansible's variables of the task.
            connection: the wishes for a test of the connection in the same call, None for no test.
        """
        check = bool(self._task.check_mode)
        if check and not request.READS:
            return node_program.of_check_mode(request)
        program, secrets = node_program.program(python), set(request.secrets())
        stdin = request.replaced(check=check).to_bytes()
        if connection is None:
            done = self._enter(program, stdin, secret=bool(secrets))
        else:
            who, done = self.hello(connection.encode(), task_vars, program, stdin)
            if who.get("failed"):
                return dict(who, changed=False)
        result = node_program.result(python, request, done["rc"], done["stdout"], done["stderr"])
        answer = checked(request, result, task_vars["inventory_hostname"])
        if answer.get("msg"):  # an error may quote a log that holds a secret
            answer["msg"] = remove_values(answer["msg"], secrets)
        return answer

    def hello(
        self, wanted: Json, task_vars: Json, program: str = "", stdin: Optional[bytes] = None
    ) -> Tuple[Json, Json]:
        """Check the login user and Python on the node, and run `program` there with `stdin`.

        With pipelining, one command line does the check and runs `program`. So `program` has run
        even if the check fails. The command line runs as Ansible runs a module: with data on stdin,
        and so without the terminal that Ansible's ssh gives to a command without data. Otherwise a
        sudo that needs a terminal would show only at the first module.

        Args:
            wanted: {"users": the allowed login users, [] for all users; "trainer": mxcluster_user,
                "" if the login user trains; "modules": True if modules of Ansible will run on the
                node}.
            task_vars: Ansible's variables of the task.
            program: a command line, "" for none.
            stdin: the bytes for the stdin of `program`.

        Returns:
            (who, told). `who` is {"user", "uid", "python", "over_ssh"}, or a failed result with a
                message. `told` is Ansible's result of the last command, {} if the connection
                failed.
        """
        host = task_vars["inventory_hostname"]
        address = str(self._value(task_vars, "ansible_host") or host)
        try:
            port = of_host(
                host, {"ansible_port": self._value(task_vars, "ansible_port")}
            ).ansible_port
        except MxclusterError as refusal:
            return {"failed": True, "refused": True, "msg": str(refusal)}, {}
        over_ssh = self._connection.transport in ("ssh", "paramiko")
        if self._connection.transport == "ssh":
            self._connection.set_option(
                "reconnection_retries", 0
            )  # so that Ansible reports an unreachable node at once
        interpreter = self._value(task_vars, "ansible_python_interpreter") or "auto"
        pythons = contact.pythons_of(str(interpreter))
        of_modules = self._pythons_of_modules(task_vars) if wanted.get("modules") else []
        question = contact.hello(pythons, of_modules)
        user = str(self._get_remote_user() or getpass.getuser())
        try:
            if program and not self._is_pipelining_enabled(
                "new", False
            ):  # the file for stdin must be copied, so check the login first
                answer = self._enter(question, None)
            else:
                pipelined = self._is_pipelining_enabled("new", False)
                answer = self._enter(
                    "; ".join(filter(None, [question, program])),
                    stdin or (NO_DATA if pipelined else None),
                )
        except AnsibleConnectionFailure as error:
            return {
                "failed": True,
                "msg": contact.explain(str(error), host, address, port, user),
            }, {}
        except AnsibleError as error:  # such as a missing password of sudo
            refused = contact.sudo_refuses(host, address, user, str(error))
            if refused is None:
                raise
            return {"failed": True, "msg": refused}, {}
        told = contact.judged(host, address, pythons, wanted, answer, user)
        if told.get("failed"):
            return told, answer
        told["over_ssh"] = over_ssh
        problem = contact.root_trains(host, wanted.get("trainer"), told) or contact.old_python(
            host, answer, CORE, oldest_python(CORE)
        )
        if problem:
            return {"failed": True, "refused": True, "msg": problem}, answer
        if program and not self._is_pipelining_enabled("new", False):
            answer = self._enter(program, stdin)
        return told, answer

    def _value(self, task_vars: Json, name: str) -> Any:
        """Return the value of a host variable with its templates evaluated, None without a value.

        Ansible evaluates the templates of a task's arguments only, not those of `task_vars`.
        """
        value = task_vars.get(name)
        is_template = isinstance(value, str) and ("{{" in value or "{%" in value)
        return self._templar.template(value) if is_template else value

    def _pythons_of_modules(self, task_vars: Json) -> List[str]:
        """Return the names of the Pythons that Ansible tries for its modules on this node.

        The list is empty under ansible-core 2.16, because its modules run on every Python of the
        supported systems.
        """
        if oldest_python(CORE) <= (3, 6):
            return []
        wanted = C.config.get_config_value("INTERPRETER_PYTHON", variables=task_vars)
        wanted = str(self._templar.template(wanted))
        if not wanted.startswith("auto"):
            return [wanted]
        return list(C.config.get_config_value("INTERPRETER_PYTHON_FALLBACK", variables=task_vars))

    def _enter(self, program: str, stdin: Optional[bytes], secret: bool = False) -> Json:
        """Run the command line `program` on the node and return Ansible's result.

        If pipelining is enabled, `stdin` goes over the open connection, else through a temporary
        file. With `secret`, Ansible shows no output, even with -vvv.
        """
        if secret:
            self._play_context.no_log = True
        if stdin is None or self._is_pipelining_enabled("new", False):
            result: Json = self._low_level_execute_command(program, in_data=stdin)
            return result
        folder = self._make_tmp_path()
        try:
            path = self._connection._shell.join_path(folder, "asked.json")
            self._transfer_data(path, stdin)
            self._fixup_perms2([folder, path], execute=False)
            result = self._low_level_execute_command("%s < %s" % (program, shlex.quote(path)))
            return result
        finally:
            self._remove_tmp_path(folder, force=True)


def checked(request: Request, answer: Json, host: str) -> Json:
    """Return the answer of `host`, or a failed result that names an invalid field.

    Args:
        request: the command.
        answer: the result of `node_program.result`.
        host: the node's name in the inventory.
    """
    if any(answer.get(name) for name in ("failed", "unreachable", "skipped")) or "msg" in answer:
        return answer
    try:
        found = request.checked(host, answer).encode()
        found.update(
            (name, value)
            for name, value in answer.items()
            if name in OWN or name.startswith(("_ansible_", "ansible_"))
        )
    except MxclusterError as refusal:
        found = {"failed": True, "changed": False, "msg": str(refusal)}
    # Marked unsafe, so that Ansible evaluates no template in the result.
    result: Json = wrap_var(found)
    return result
