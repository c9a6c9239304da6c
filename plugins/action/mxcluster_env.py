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
        answer = super(ActionModule, self).run(tmp, task_vars)
        if answer.get("failed") or answer.get("unreachable"):
            return answer
        try:
            needs = wheels.needs(Environment.decode(self._task.args), answer["python"])
        except (MxclusterError, Wrong) as refusal:
            return dict(answer, failed=True, msg=str(refusal))
        return dict(
            answer, needs=(needs.replaced(requirements=[]) if answer["built"] else needs).encode()
        )
