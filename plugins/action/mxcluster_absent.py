"""Run the module mxcluster_absent on a node, with the record of what provisioning has left there.

The plugin adds to the arguments of the task what only the controller knows: the state of the files
after the last provisioning, and the nodes that this run leaves out.
"""

import fnmatch
import os
from typing import Dict, List, Sequence

from ansible.plugins.action import ActionBase

from mxcluster.ansible import arguments
from mxcluster.ansible.edge import TaskResult, TaskVars
from mxcluster.ansible.module_task import run_module
from mxcluster.cluster import drift
from mxcluster.errors import BadInput
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, one_of

GROUPS = ("scheduler", "servers", "workers")


class Item(Record, strict=True):
    """A path on the node that the task removes. A * stands for any part of a name."""

    path: str = field(arguments.text)
    kind: str = field(one_of("file", "folder", "empty", "block"), default="file")
    """A file, a folder with its content, a folder if it is empty, or a block of a file."""
    contents: Sequence[str] = field(arguments.texts, default=[])
    """In base64, the contents that the role would write."""
    marker: str = field(arguments.text, default="")
    """The lines around a block, with {mark} for BEGIN and END."""
    minor: Sequence[str] = field(arguments.texts, default=[])
    """Patterns of names that an empty folder may have."""
    shared: bool = field(arguments.flag, default=False)
    """True if nodes may share the path."""


class Arguments(Record, strict=True):
    """The arguments of the task."""

    paths: Sequence[Item] = field(each(record(Item)))
    user: str = field(arguments.text, default="")
    """The user whose rights root uses, empty for root."""
    state_dir: str = field(arguments.path, default="")
    """The folder on the controller with the states of the nodes."""


class ActionModule(ActionBase):
    """The action plugin of `mxcluster_absent`."""

    TRANSFERS_FILES = False

    def run(self, tmp: object = None, task_vars: TaskVars = None) -> TaskResult:
        """Run one task and return its result to Ansible."""
        result = super(ActionModule, self).run(tmp, task_vars)
        try:
            given = arguments.decode(Arguments, "mxcluster_absent", self._task.args)
        except BadInput as refusal:
            return dict(result, failed=True, msg=str(refusal))
        asked = {
            "paths": [item.encode() for item in given.paths],
            "user": given.user,
            "seen": self._seen(given, task_vars["inventory_hostname"]),
            **left_out(task_vars),
        }
        return dict(result, **run_module(self, "mxcluster_absent", asked, task_vars))

    @staticmethod
    def _seen(given: Arguments, host: str) -> Dict[str, str]:
        """Return {path: look} of the paths of the task that provisioning has left on `host`."""
        if not given.state_dir:
            return {}
        known = drift.remembered(os.path.join(given.state_dir, "drift", host + ".json")).seen
        patterns = [item.path for item in given.paths]
        return {
            path: look
            for path, look in known.items()
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)
        }


def left_out(task_vars: TaskVars) -> Dict[str, List[str]]:
    """Return {"others": the nodes that this run leaves out, "here": those of them on this machine}.

    Args: `task_vars` Ansible's variables of the task.
    """
    hosts = {host for group in GROUPS for host in task_vars["groups"].get(group, [])}
    others = sorted(hosts - set(task_vars["ansible_play_hosts_all"]))

    def is_local(host: str) -> bool:
        return bool(task_vars["hostvars"][host].get("ansible_connection") == "local")

    here = [host for host in others if is_local(host)]
    return {"others": others, "here": here if is_local(task_vars["inventory_hostname"]) else []}
