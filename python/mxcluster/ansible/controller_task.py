"""Base of action plugins that run in Ansible's own process on the controller.

Such a plugin starts no other interpreter and needs no host. Only this module and
`mxcluster.ansible.node_task` import Ansible.
"""

import sys
from typing import Any, Dict

import yaml
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.unsafe_proxy import wrap_var

from mxcluster.errors import MxclusterError

Json = Dict[str, Any]
LOADER = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # CSafeLoader, which PyYAML may lack, is ten times as fast
KEYS = ("type", "elements", "required", "default", "choices", "no_log")


class ControllerTask(ActionBase):  # type: ignore[misc]  # ansible has no types
    """Base of an action plugin whose file defines DOCUMENTATION and ``carry_out``.

    DOCUMENTATION declares the arguments. ``carry_out(arguments, check_mode)`` returns the result of
    the task as a dict. If ``carry_out`` raises MxclusterError or OSError, the task fails. The file
    may also define REQUIRED_IF for Ansible, and REGISTERED, a tuple of argument names. `registered`
    replaces the values of these arguments.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> Json:
        """Return the result of ``carry_out``, or a failed result. Ansible calls this method."""
        result = super(ControllerTask, self).run(tmp, task_vars)
        plugin = sys.modules[type(self).__module__]
        given = self.validate_argument_spec(
            spec_of(plugin.DOCUMENTATION), required_if=getattr(plugin, "REQUIRED_IF", None)
        )[1]
        given.update(
            {name: registered(given[name], task_vars) for name in getattr(plugin, "REGISTERED", ())}
        )
        try:
            found = plugin.carry_out(given, self._task.check_mode)
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
        return dict(
            result, **wrap_var(dict({"changed": False}, **found))
        )  # marked unsafe, so that Ansible evaluates no template in the result


def show(piece: str, is_stderr: bool) -> None:
    """Show a piece of a child's output on the terminal, but not in Ansible's log.

    The child itself writes the log of Ansible's log_path.

    Args:
        piece: the text.
        is_stderr: True if the child wrote the piece to stderr.
    """
    Display().display(piece, stderr=is_stderr, screen_only=True, newline=False)


def registered(name: Any, task_vars: Any) -> Any:
    """Return {host: the host's value of the variable `name`} for all hosts.

    A host without the variable has {}. A task could pass the values as an argument, but Ansible
    would convert the values to text and back. If `name` is not a string, the function returns
    `name` itself.
    """
    if not isinstance(name, str):
        return name
    hostvars = task_vars["hostvars"]
    return {host: hostvars.raw_get(host).get(name, {}) for host in hostvars}


def spec_of(documentation: str) -> Json:
    """Return the argument spec, {name: {"type", ...}}, of the YAML text `documentation`."""
    return arguments_of(yaml.load(documentation, Loader=LOADER))


def arguments_of(documentation: Json) -> Json:
    """Return the argument spec, {name: {"type", ...}}, of a parsed DOCUMENTATION."""
    options = documentation.get("options") or {}
    return {
        name: {key: option[key] for key in KEYS if key in option}
        for name, option in options.items()
    }
