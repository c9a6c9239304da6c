"""Base of action plugins that run in Ansible's own process on the controller.

Such a plugin starts no other interpreter and needs no host.
"""

import sys
from typing import Optional, Sequence

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.unsafe_proxy import wrap_var

from mxcluster.ansible import arguments
from mxcluster.ansible.edge import TaskResult, TaskVars
from mxcluster.errors import MxclusterError
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, flag, optional, text, whole


class Result(Record):
    """The result of a controller task, which Ansible and the callback `mxcluster` read."""

    changed: bool = field(flag, default=False)
    mxcluster_verdict_text: Optional[Sequence[str]] = field(optional(each(text)), default=None)
    """The lines that the callback shows at the end."""
    mxcluster_exit_status: Optional[int] = field(optional(whole(0, 255)), default=None)
    """The exit status of ansible-playbook, which the callback sets."""


class ControllerTask(ActionBase):  # type: ignore[misc]  # ansible has no types
    """Base of an action plugin whose file defines the class Arguments and ``carry_out``.

    ``carry_out(given, check)`` gets the decoded arguments of the task, and True in check mode. The
    function returns the Result of the task. If ``carry_out`` raises MxclusterError or OSError, the
    task fails. The file may also define REGISTERED, a tuple of argument names. `registered`
    replaces the values of these arguments.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: object = None, task_vars: TaskVars = None) -> TaskResult:
        """Return the result of ``carry_out``, or a failed result. Ansible calls this method."""
        result = super(ControllerTask, self).run(tmp, task_vars)
        name = type(self).__module__
        plugin, given = sys.modules[name], dict(self._task.args)
        for registering in getattr(plugin, "REGISTERED", ()):
            if registering in given:
                given[registering] = registered(given[registering], task_vars)
        try:
            known = arguments.decode(plugin.Arguments, name.rpartition(".")[2], given)
            found = plugin.carry_out(known, self._task.check_mode).encode()
        except MxclusterError as error:
            return dict(result, failed=True, msg=str(error))
        except OSError as error:
            return dict(
                result,
                failed=True,
                msg="cannot read or write %s on the controller (%s): correct the path, the "
                "owner or the rights of this file, or free disk space. Then run the playbook again"
                % (error.filename, error.strerror)
                if error.filename
                else str(error),
            )
        # Marked unsafe, so that Ansible evaluates no template in the result.
        return dict(result, **wrap_var(found))


def show(piece: str, is_stderr: bool) -> None:
    """Show a piece of a child's output on the terminal, but not in Ansible's log.

    The child itself writes the log of Ansible's log_path.

    Args:
        piece: the text.
        is_stderr: True if the child wrote the piece to stderr.
    """
    Display().display(piece, stderr=is_stderr, screen_only=True, newline=False)


def registered(name: object, task_vars: TaskVars) -> object:
    """Return {host: the host's value of the variable `name`} for all hosts.

    A host without the variable has {}. A task could pass the values as an argument, but Ansible
    would convert the values to text and back. If `name` is not a string, the function returns
    `name` itself.
    """
    if not isinstance(name, str):
        return name
    hostvars = task_vars["hostvars"]
    return {host: hostvars.raw_get(host).get(name, {}) for host in hostvars}
