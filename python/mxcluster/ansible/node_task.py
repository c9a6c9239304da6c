"""Base of action plugins that run `mxcluster.entry` on a node over the open connection.

Ansible copies no module to the node for such a plugin. This module imports Ansible, as
`mxcluster.ansible.controller_task` does.
"""

import getpass
import re
import shlex
from typing import List, Optional, Tuple, Union

from ansible import __version__ as CORE
from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.parameters import remove_values
from ansible.plugins.action import ActionBase
from ansible.utils.unsafe_proxy import wrap_var

from mxcluster.ansible import contact, node_program, preflight_arguments
from mxcluster.ansible.contact import Login, NoLogin, Output
from mxcluster.ansible.edge import TaskResult, TaskVars
from mxcluster.ansible.node_arguments import Connection
from mxcluster.errors import MxclusterError
from mxcluster.model.host_variables import of_host
from mxcluster.model.protocol import Request

CONNECT = "-o ConnectTimeout=%d "
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
        task_vars: TaskVars,
        connection: Optional[Connection] = None,
    ) -> TaskResult:
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
        stdin, host = request.replaced(check=check).to_bytes(), task_vars["inventory_hostname"]
        try:
            if connection is None:
                done = self._enter(program, stdin, secret=bool(secrets))
            else:
                done = self.check_connection(connection, task_vars, program, stdin)[1]
            found = node_program.result(python, request, host, done)
        except MxclusterError as error:
            message = remove_values(str(error), secrets)  # an error may quote a log with a secret
            found = {"failed": True, "changed": False, "msg": message}
        # Marked unsafe, so that Ansible evaluates no template in the result.
        return wrap_var(found)

    def check_connection(
        self,
        wanted: Union[Connection, preflight_arguments.Connection],
        task_vars: TaskVars,
        program: str = "",
        stdin: Optional[bytes] = None,
    ) -> Tuple[Login, Output]:
        """Check the login user and Python on the node, and run `program` there with `stdin`.

        With pipelining, one command line does the check and runs `program`. So `program` has run
        even if the check fails. The command line runs as Ansible runs a module: with data on stdin,
        and so without the terminal that Ansible's ssh gives to a command without data. Otherwise a
        sudo that needs a terminal would show only at the first module.

        Returns (the login, the output of the last command). Raises NoLogin if Ansible cannot run a
        command as an allowed user, and BadInput if a variable of the inventory is wrong, root would
        train, or the node's Python is too old.

        Args:
            wanted: the wishes.
            task_vars: Ansible's variables of the task.
            program: a command line, "" for none.
            stdin: the bytes for the stdin of `program`.
        """
        host = task_vars["inventory_hostname"]
        variables = {"ansible_port": self._value(task_vars, "ansible_port")}
        node = contact.Node(
            host,
            str(self._value(task_vars, "ansible_host") or host),
            of_host(host, variables).ansible_port,
            str(self._get_remote_user() or getpass.getuser()),
        )
        interpreter = self._value(task_vars, "ansible_python_interpreter") or "auto"
        pythons = contact.pythons_of(str(interpreter))
        of_modules = self._pythons_of_modules(task_vars) if wanted.modules else []
        question, data = contact.question(pythons, of_modules), None  # type: str, Optional[bytes]
        pipelined = bool(self._is_pipelining_enabled("new", False))
        at_once = pipelined or not program  # else the file for stdin comes after the check
        if at_once:
            question = "; ".join(filter(None, [question, program]))
            data = stdin or (NO_DATA if pipelined else None)
        if self._connection.transport == "ssh":  # report an unreachable node at once
            self._connection.set_option("reconnection_retries", 0)
        try:
            output = self._enter(question, data)
        except AnsibleConnectionFailure as error:
            raise NoLogin(contact.explain(str(error), node)) from None
        except AnsibleError as error:  # such as a missing password of sudo
            refused = contact.sudo_refuses(node, str(error))
            if refused is None:
                raise
            raise NoLogin(refused) from None
        over_ssh = self._connection.transport in ("ssh", "paramiko")
        login = contact.login_of(node, pythons, wanted.users, output, over_ssh)
        contact.refuse_root(host, wanted.trainer, login)
        contact.refuse_old_python(host, output, CORE, oldest_python(CORE))
        return login, output if at_once else self._enter(program, stdin)

    def limit_connecting(self, seconds: int) -> None:
        """Set ssh's connect timeout to `seconds` and disable the retries of the connection.

        The caller itself retries for O(patience) seconds.
        """
        connection = self._connection
        if connection.transport == "ssh":
            connection.set_option("reconnection_retries", 0)
            options = re.sub(
                r"^(-o ConnectTimeout=\d+ )+", "", connection.get_option("ssh_args") or ""
            )
            # ssh uses the first value of a repeated option.
            connection.set_option("ssh_args", CONNECT % seconds + options)

    def _value(self, task_vars: TaskVars, name: str) -> object:
        """Return the value of a host variable with its templates evaluated, None without a value.

        Ansible evaluates the templates of a task's arguments only, not those of `task_vars`.
        """
        value = task_vars.get(name)
        is_template = isinstance(value, str) and ("{{" in value or "{%" in value)
        return self._templar.template(value) if is_template else value

    def _pythons_of_modules(self, task_vars: TaskVars) -> List[str]:
        """Return the names of the Pythons that Ansible tries for its modules on this node.

        The list is empty under ansible-core 2.16, because its modules run on every Python of the
        supported systems.
        """
        if oldest_python(CORE) <= (3, 6):
            return []
        value = C.config.get_config_value("INTERPRETER_PYTHON", variables=task_vars)
        interpreter = str(self._templar.template(value))
        if not interpreter.startswith("auto"):
            return [interpreter]
        return list(C.config.get_config_value("INTERPRETER_PYTHON_FALLBACK", variables=task_vars))

    def _enter(self, program: str, stdin: Optional[bytes], secret: bool = False) -> Output:
        """Run the command line `program` on the node and return its output.

        If pipelining is enabled, `stdin` goes over the open connection, else through a temporary
        file. With `secret`, Ansible shows no output, even with -vvv.
        """
        if secret:
            self._play_context.no_log = True
        if stdin is None or self._is_pipelining_enabled("new", False):
            return Output.decode(self._low_level_execute_command(program, in_data=stdin))
        folder = self._make_tmp_path()
        try:
            path = self._connection._shell.join_path(folder, "request.json")
            self._transfer_data(path, stdin)
            self._fixup_perms2([folder, path], execute=False)
            command = "%s < %s" % (program, shlex.quote(path))
            return Output.decode(self._low_level_execute_command(command))
        finally:
            self._remove_tmp_path(folder, force=True)
