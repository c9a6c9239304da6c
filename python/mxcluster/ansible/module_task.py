"""Run our modules of Ansible on a node, with a check of each answer.

Root of a node can change the answers of this node, so no task may use an unchecked answer. This
module imports Ansible, as `mxcluster.ansible.controller_task` does.
"""

from ansible.plugins.action import ActionBase
from ansible.utils.unsafe_proxy import wrap_var

from mxcluster.ansible.edge import TaskArguments, TaskResult, TaskVars
from mxcluster.errors import MxclusterError
from mxcluster.model import module_answers

# Ansible on the controller adds this fact, and drops the same fact of a module. Without the fact,
# Ansible would look for the node's Python in each task.
DISCOVERED = ("discovered_interpreter_", "ansible_discovered_interpreter_")


def run_module(
    task: ActionBase, module: str, arguments: TaskArguments, task_vars: TaskVars
) -> TaskResult:
    """Run our module `module` on the node of a task, and return the checked answer.

    Returns a failed result that names the host and the field if the answer is invalid.

    Args: `task` the action plugin; `arguments` of the module; `task_vars` Ansible's variables.
    """
    answer = task._execute_module(module_name=module, module_args=arguments, task_vars=task_vars)
    try:
        checked = {name: answer[name] for name in module_answers.SHOWN if name in answer}
        host = task_vars["inventory_hostname"]
        checked.update(module_answers.check(module, host, answer).encode())
    except MxclusterError as refusal:
        checked = {"failed": True, "changed": False, "msg": str(refusal)}
    facts = answer.get("ansible_facts")
    facts = facts if isinstance(facts, dict) else {}
    found = {name: value for name, value in facts.items() if name.startswith(DISCOVERED)}
    if found:
        checked["ansible_facts"] = found
    # Marked unsafe, so that Ansible evaluates no template in the result.
    return wrap_var(checked)


class ModuleTask(ActionBase):  # type: ignore[misc]  # ansible has no types
    """Base of an action plugin that runs the module of the same name, and checks the answer."""

    TRANSFERS_FILES = False

    def run(self, tmp: object = None, task_vars: TaskVars = None) -> TaskResult:
        """Run one task and return its result to Ansible."""
        result = super(ModuleTask, self).run(tmp, task_vars)
        module = type(self).__module__.rpartition(".")[2]
        return dict(result, **run_module(self, module, dict(self._task.args), task_vars))
