"""Compare the present state of a node with the state recorded on the controller.

This action plugin runs on the controller. The module mxcluster_drift runs on the node. The result
of the command look has `why`, the reason to provision the node again, or None. If only other nodes
have changed, `why_files` is the reason to write the cluster files and SSH files of the node again.
"""

import os
from typing import Mapping, Optional, Sequence

from ansible.errors import AnsibleError
from ansible.utils.unsafe_proxy import wrap_var

from mxcluster.ansible import arguments, role_specs
from mxcluster.ansible.edge import HostVars, TaskResult, TaskVars
from mxcluster.ansible.module_task import run_module
from mxcluster.ansible.node_task import NodeTask
from mxcluster.cluster import drift, driver, node_records
from mxcluster.errors import BadInput
from mxcluster.model import protocol
from mxcluster.model.node_record import NodeFacts
from mxcluster.model.node_requests import RecordRequest
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import table

# Variables with these prefixes affect only the current run.
OTHERS = ("train_job_", "jobs_", "verify_", "preflight_", "drift_", "ssh_mesh_new_key")
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


class Shared(Record, strict=True):
    """The inputs that the drift check of every node uses."""

    sources: str = field(arguments.text)
    """A digest of mxcluster's files."""
    digests: Mapping[str, str] = field(table(arguments.text, arguments.text))
    """{words for a message: digest of an input}."""
    cluster: Mapping[str, str] = field(table(arguments.text, arguments.text))
    """The same for the inputs that only the cluster files and SSH files contain."""
    variables: Sequence[str] = field(arguments.texts)
    """The names of the variables that affect provisioning."""


class Arguments(Record, strict=True, kind_key="command"):
    """The arguments of each command."""


class Forget(Arguments, kind="forget"):
    """Remove the state of the node after a reset, except for files that stay."""

    path: str = field(arguments.path)
    """The file on the controller that records the state."""
    kept: Sequence[str] = field(arguments.texts)
    """The paths on the node that stay."""


class Inputs(Arguments):
    """The arguments of each command that reads the inputs of the provisioning."""

    wanted: Mapping[str, str] = field(table(arguments.text, drift.of_value))
    """{words for a message: digest} of all inputs, besides variables of roles, that determine the
    state of the node; for the command common, the inputs of every node's cluster files and SSH
    files."""
    records_dir: str = field(arguments.path)
    """The folder of the node records."""


class Common(Inputs, kind="common"):
    """Compute the inputs that all nodes share."""

    nodes: Sequence[str] = field(arguments.texts)
    """The hosts whose records are inputs of every node, because each node gets the keys and
    addresses of these hosts."""
    sources: str = field(arguments.text, default="")
    """The earlier result `sources` of this run, if any."""


class Remember(Inputs, kind="remember"):
    """Record the state of the node."""

    path: str = field(arguments.path)
    """The file on the controller that records the state."""
    common: Shared = field(record(Shared))
    """The result of the command common."""
    python: str = field(arguments.text)
    """The interpreter of the environment, which makes the node record."""
    user: str = field(arguments.text)
    """The training user, empty for the login user. A change of its passwd entry counts as a change
    of the node."""
    files: Sequence[str] = field(arguments.texts)
    """Patterns of files and folders on the node; /** at the end stands for all below."""
    roots: Sequence[str] = field(arguments.texts)
    """Folders that only root may change, as the folders above them."""
    user_files: Sequence[str] = field(arguments.texts)
    """Patterns of files that `user` can write; ~/ is the user's home."""
    controller_files: Sequence[str] = field(arguments.texts)
    """Files on the controller that affect the state of the node."""
    layout: Mapping[str, str] = field(table(arguments.text, arguments.text))
    """The variables on which running jobs rely. The command look fails if one has changed and a job
    runs on the node."""


class Look(Remember, kind="look"):
    """Return the reason to provision the node again."""

    anyway: bool = field(arguments.flag, default=False)
    """True if provision.yml goes through the node even without a change."""


def value_of(hostvars: HostVars, host: str, name: str) -> object:
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

    def run(self, tmp: object = None, task_vars: TaskVars = None) -> TaskResult:
        """Run one task and return its result to Ansible."""
        result = super(ActionModule, self).run(tmp, task_vars)
        try:
            given = arguments.decode(Arguments, "mxcluster_drift", self._task.args)
        except BadInput as refusal:
            return dict(result, failed=True, msg=str(refusal))
        if isinstance(given, Forget):
            changed = drift.forget(given.path, given.kept, bool(self._task.check_mode))
            return dict(result, changed=changed)
        if isinstance(given, Common):
            return dict(result, changed=False, common=self._common(given).encode())
        host, path, common = task_vars["inventory_hostname"], given.path, given.common
        values = task_vars["hostvars"][host]
        digests = {
            name: drift.of_value(value_of(task_vars["hostvars"], host, name))
            for name in common.variables
            if name in values
        }
        digests["the shared ssh key"] = drift.of_files(given.controller_files)
        digests.update(given.wanted, **common.digests)
        if not isinstance(given, Look):
            if self._task.check_mode:
                return dict(result, changed=False)
            found = self._look(given, task_vars)
            if not found.get("failed"):
                inputs = {**digests, **common.cluster}
                state = drift.State(digests=inputs, seen=found["seen"], layout=given.layout)
                drift.remember(path, state)
            return dict(result, **found)
        known = drift.remembered(path)
        refusal = self._refusal(host, known, given.layout, task_vars)
        if refusal:
            return dict(result, changed=False, failed=True, msg=wrap_var(refusal))
        why = (
            "requested by drift_anyway or ssh_mesh_new_key"
            if given.anyway
            else self._why(given, known, digests, task_vars)
        )
        if why and os.path.exists(path) and not self._task.check_mode:
            # The state has no digests until provisioning succeeds. It keeps the old layout,
            # because jobs with this layout may still start.
            drift.remember(path, drift.State(layout=known.layout))
        files = None if why else drift.why_cluster(known, common.cluster)
        return dict(result, changed=False, why=wrap_var(why), why_files=files)

    @staticmethod
    def _common(given: Common) -> Shared:
        """Return the inputs that the drift check of every node uses.

        The play computes these inputs once for all nodes, because the computation takes time.
        """
        sources = given.sources or drift.of_sources(PROJECT)
        records = [os.path.join(given.records_dir, node + ".json") for node in given.nodes]
        return Shared(
            sources=sources,
            digests={"the files of mxcluster": drift.of_value(sources)},
            cluster={**given.wanted, "the node records": drift.of_files(records)},
            variables=[
                name for name in role_specs.documented(PROJECT) if not name.startswith(OTHERS)
            ],
        )

    def _refusal(
        self, host: str, known: drift.State, layout: Mapping[str, str], task_vars: TaskVars
    ) -> Optional[str]:
        """Return an error message if a job runs on `host` and the layout would change, else None.

        The layout is the training user, mxcluster's folders and the MXNet version of a node.
        Running jobs rely on the layout.

        Args: `known` the state with the old layout; `layout` {variable: new value}.
        """
        changes = drift.moved(known, layout)
        if not changes:
            return None
        old = dict(layout, **known.layout)
        answer = self.ask(
            old["mxcluster_env_dir"] + "/bin/python",
            protocol.Jobs(jobs_dir=old["mxcluster_job_dir"], user=old["mxcluster_user"]),
            task_vars,
        )
        # A running job needs the old environment. Without this environment the command fails, and
        # `answer` has no jobs.
        return drift.refusal(host, changes, driver.Jobs.decode(answer))

    def _why(
        self, given: Look, known: drift.State, digests: Mapping[str, str], task_vars: TaskVars
    ) -> Optional[str]:
        """Return the reason why the node needs provisioning, else None.

        Args: `given` the arguments of the task; `known` the recorded state; `digests` of the
        present inputs.
        """
        why = drift.why_before_asking(known, digests, given.common.cluster)
        if why:
            return why
        found = self._look(given, task_vars)
        if found.get("failed"):
            return found.get("msg")
        path = os.path.join(given.records_dir, task_vars["inventory_hostname"] + ".json")
        before = node_records.of_file(path) or NodeFacts()
        request = protocol.RecordNode(user=given.user, arguments=RecordRequest(known=before))
        answer = self.ask(given.python, request, task_vars)
        if answer.get("failed") or not isinstance(answer.get("record"), dict):
            return answer.get("msg") or "the node has returned no node record"
        return drift.why(known, found["seen"], before, NodeFacts.decode(answer["record"]))

    def _look(self, given: Remember, task_vars: TaskVars) -> TaskResult:
        """Run the module mxcluster_drift on the node. `given`: the arguments of the task."""
        paths = {name: getattr(given, name) for name in ("files", "roots", "user", "user_files")}
        return run_module(self, "mxcluster_drift", paths, task_vars)
