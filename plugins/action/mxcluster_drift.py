"""Compare the present state of a node with the state recorded on the controller.

This action plugin runs on the controller. The module mxcluster_drift runs on the node.
"""

import os
from typing import Any, Dict, Optional

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.display import Display
from ansible.utils.unsafe_proxy import wrap_var

from mxcluster.ansible import role_specs
from mxcluster.ansible.module_task import run_module
from mxcluster.ansible.node_task import NodeTask, completed
from mxcluster.cluster import drift, node_records
from mxcluster.job import verdict
from mxcluster.model.node_record import NodeFacts

Json = Dict[str, Any]
HostVars = Any  # ansible.vars.hostvars.HostVars

# Variables with these prefixes affect only the current run.
OTHERS = ("train_job_", "jobs_", "verify_", "preflight_", "drift_", "ssh_mesh_new_key")
# The inputs of roles/drift/vars/main.yml and tasks/common.yml in messages.
WORDS = {
    "decided": "the chosen versions",
    "packages": "the chosen packages",
    "files": "the cluster files",
    "variables": "the addresses and ssh settings of the nodes",
}
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

display = Display()


def value_of(hostvars: HostVars, host: str, name: str) -> Any:
    """Return the value of the variable `name` of `host`, or the template if the evaluation fails.

    The evaluation fails for a template that uses a default of a role, because hostvars lack the
    defaults of roles. ansible-core 2.16 itself returns such a template. Newer versions raise an
    error.
    """
    try:
        return hostvars[host][name]
    except AnsibleError:
        return hostvars.raw_get(host)[name]


class ActionModule(NodeTask):
    """The action plugin of `mxcluster_drift`, which compares or records the state of a node."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> Json:
        """Run one task and return its result to Ansible."""
        result, given = super(ActionModule, self).run(tmp, task_vars), self._task.args
        if given.get("command") == "common":
            return dict(result, changed=False, common=self._common(given))
        host, path, common = task_vars["inventory_hostname"], given["path"], given["common"]
        values = task_vars["hostvars"][host]
        variables = {
            name: value_of(task_vars["hostvars"], host, name)
            for name in common["variables"]
            if name in values
        }
        digests = dict(
            drift.digests_of(
                {"the shared ssh key": given["controller_files"]},
                dict(
                    variables,
                    **{WORDS.get(name, name): given["wanted"][name] for name in given["wanted"]},
                ),
            ),
            **common["digests"],
        )
        if given.get("command") == "remember":
            if self._task.check_mode:
                return dict(result, changed=False)
            asked = self._look(given, task_vars)
            if not asked.get("failed"):
                drift.remember(path, digests, asked["seen"], given["layout"])
            return dict(result, **asked)
        known = drift.remembered(path)
        refusal = self._refusal(host, known, given["layout"], task_vars)
        if refusal:
            return dict(result, changed=False, failed=True, msg=wrap_var(refusal))
        why = (
            "requested by drift_anyway or ssh_mesh_new_key"
            if boolean(given.get("anyway") or False)
            else self._why(given, known, digests, task_vars)
        )
        if why:
            display.display("%s needs provisioning: %s" % (host, verdict.printable(why)))
            if known and not self._task.check_mode:
                # The record has no digests until provisioning succeeds. It keeps the old layout,
                # because jobs with this layout may still start.
                drift.remember(path, {}, {}, known.get("layout") or {})
        return dict(result, changed=False, why=wrap_var(why))

    @staticmethod
    def _common(given: Json) -> Json:
        """Return the inputs that the drift check of every node uses.

        "sources" is a digest (str) of mxcluster's files. "digests" also has those of the node
        records and of the planned cluster files. "variables" lists the names of the variables that
        affect provisioning. The play computes these inputs once for all nodes, because the
        computation takes time.

        Args: `given` the arguments of the task.
        """
        sources = given.get("sources") or drift.of_sources(PROJECT)
        records = [os.path.join(given["records_dir"], node + ".json") for node in given["nodes"]]
        return {
            "sources": sources,
            "digests": drift.digests_of(
                {"the node records": records},
                dict(
                    {WORDS.get(name, name): value for name, value in given["wanted"].items()},
                    **{"the files of mxcluster": sources},
                ),
            ),
            "variables": [
                name for name in role_specs.documented(PROJECT) if not name.startswith(OTHERS)
            ],
        }

    def _refusal(self, host: str, known: Json, layout: Json, task_vars: Json) -> Optional[str]:
        """Return an error message if a job runs on `host` and the layout would change, else None.

        The layout is the training user, mxcluster's folders and the MXNet version of a node.
        Running jobs rely on the layout.

        Args: `known` the recorded state with the old layout; `layout` {variable: new value}.
        """
        changes = drift.moved(known, layout)
        if not changes:
            return None
        old = dict(layout, **known["layout"])
        told = self.ask(
            completed(
                {
                    "command": "jobs",
                    "python": old["mxcluster_env_dir"] + "/bin/python",
                    "user": old["mxcluster_user"],
                    "jobs_dir": old["mxcluster_job_dir"],
                }
            ),
            task_vars,
        )
        # A running job needs the old environment. Without this environment the command fails, and
        # `told` has no jobs.
        return drift.refusal(host, changes, told.get("jobs") or [])

    def _why(
        self, given: Json, known: Json, digests: Dict[str, str], task_vars: Json
    ) -> Optional[str]:
        """Return the reason why the node needs provisioning, else None.

        Args: `given` the arguments of the task; `known` the recorded state; `digests` of the
        present inputs.
        """
        why = drift.why_before_asking(known, digests)
        if why:
            return why
        asked = self._look(given, task_vars)
        if asked.get("failed"):
            return asked.get("msg")
        path = os.path.join(given["records_dir"], task_vars["inventory_hostname"] + ".json")
        before = node_records.of_file(path) or NodeFacts()
        told = self.ask(
            completed(
                {
                    "command": "record",
                    "python": given["python"],
                    "user": given["user"],
                    "request": {"known": before.encode()},
                }
            ),
            task_vars,
        )
        if told.get("failed") or not isinstance(told.get("record"), dict):
            return told.get("msg") or "the node has returned no node record"
        return drift.why(known, asked["seen"], before, NodeFacts.decode(told["record"]))

    def _look(self, given: Json, task_vars: Json) -> Json:
        """Run the module mxcluster_drift on the node. `given`: the arguments of the task."""
        wanted = ("files", "roots", "user", "user_files")
        return run_module(
            self, "mxcluster_drift", {name: given[name] for name in wanted}, task_vars
        )
