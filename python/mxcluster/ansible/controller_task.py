"""Tasks of Ansible that run in its own process on the controller: no interpreter has to start for them, and no host be named.

The base of action plugins. Only this and `mxcluster.node_task` import Ansible.
"""
import sys
from typing import Any, Dict

import yaml
from ansible.plugins.action import ActionBase
from ansible.utils.unsafe_proxy import wrap_var

from .errors import MxclusterError

Json = Dict[str, Any]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with it
KEYS = ("type", "elements", "required", "default", "choices", "no_log")


class ControllerTask(ActionBase):
    """An action plugin whose file has DOCUMENTATION, which says what its arguments are, and the function
    ``carry_out(arguments, check_mode)``, which returns the result. An MxclusterError or OSError of that fails the task."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> Json:
        """What Ansible calls."""
        result = super(ControllerTask, self).run(tmp, task_vars)
        plugin = sys.modules[type(self).__module__]
        given = self.validate_argument_spec(spec_of(plugin.DOCUMENTATION))[1]
        given.update({name: registered(given[name], task_vars) for name in getattr(plugin, "REGISTERED", ())})
        try:
            found = plugin.carry_out(given, self._task.check_mode)
        except MxclusterError as error:
            return dict(result, failed=True, msg=str(error))
        except OSError as error:
            return dict(result, failed=True, msg="%s: %s" % (error.filename, error.strerror) if error.filename else str(error))
        return dict(result, **wrap_var(dict({"changed": False}, **found)))  # as of a module: no template in it is carried out


def registered(name: Any, task_vars: Any) -> Any:
    """{host: its value of the variable `name`, {} without one}. As the argument of a task, Ansible would turn all of them to
    text and back. Anything but a name is given back."""
    if not isinstance(name, str):
        return name
    hostvars = task_vars["hostvars"]
    return {host: hostvars.raw_get(host).get(name, {}) for host in hostvars}


def spec_of(documentation: str) -> Json:
    """The argument spec that a plugin's documentation stands for."""
    return arguments_of(yaml.load(documentation, Loader=LOADER))


def arguments_of(documentation: Json) -> Json:
    """The same, of one that has been read."""
    options = documentation.get("options") or {}
    return {name: {key: option[key] for key in KEYS if key in option} for name, option in options.items()}
