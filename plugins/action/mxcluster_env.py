"""Run the module mxcluster_env on a node, and compute the missing wheels on the controller.

The node tells the version of its Python, and whether its environment has the wheels. The names and
digests of the wheels come from the arguments of the task. So no node decides what the controller
downloads, or what another node installs.
"""

from mxcluster.ansible.edge import TaskResult, TaskVars
from mxcluster.ansible.module_task import ModuleTask
from mxcluster.cluster import wheels
from mxcluster.errors import MxclusterError
from mxcluster.model.shapes import Wrong
from mxcluster.model.software import Environment


class ActionModule(ModuleTask):
    """The action plugin of `mxcluster_env`."""

    def run(self, tmp: object = None, task_vars: TaskVars = None) -> TaskResult:
        """Run one task and return its result to Ansible."""
        told = super(ActionModule, self).run(tmp, task_vars)
        if told.get("failed") or told.get("unreachable"):
            return told
        try:
            needs = wheels.needs(Environment.decode(self._task.args), told["python"])
        except (MxclusterError, Wrong) as refusal:
            return dict(told, failed=True, msg=str(refusal))
        return dict(
            told, needs=(needs.replaced(requirements=[]) if told["built"] else needs).encode()
        )
