"""Check the controller, the inventory and the connection to each node before any change.

The plugin checks the project's path, the controller's Python, the names given with -e, the
inventory, and the values of the roles' variables. A name that no playbook reads is an error. Then
the plugin writes the host keys of the inventory to a file that ssh reads.

The playbooks ignore variables of the inventory that have the short name of a knob. The result of
the command controller has `notes` about these variables, one line for each. In check mode, too, the
plugin writes the host keys, because ssh needs these keys to connect.

The result of the command connection has `user` and `uid` (on the node, after become), `over_ssh`
(whether the connection uses ssh), and `python` (the path of the first Python on the node). Without
an answer, if the task does not require one, the result has `lost`: the time of the attempt as
`since` (unix seconds), and the reason as `why`.
"""

import importlib.util
import os
import platform
import re
import sys
import time
from typing import Callable, List, Optional, Sequence, Tuple

from ansible import __version__ as CORE
from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

try:
    from mxcluster.ansible import (
        arguments,
        attempts,
        inventory_names,
        knobs,
        preflight_arguments,
        role_specs,
    )
    from mxcluster.ansible import preflight_checks as checks
    from mxcluster.ansible.contact import NoLogin
    from mxcluster.ansible.edge import TaskResult, TaskVars
    from mxcluster.ansible.node_task import NodeTask
    from mxcluster.ansible.preflight_checks import is_plain
    from mxcluster.cluster import ssh_mesh
    from mxcluster.errors import BadInput
    from mxcluster.model.host_variables import of_hosts
    from mxcluster.model.knob import knobs_of, value_of
except ImportError:  # `refused_controller` reports the missing package, for all plugins
    attempts = knobs = None
    NodeTask, TaskResult, TaskVars = ActionBase, None, None

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
OLDEST_CORE = (2, 16)
PACKAGES = ("mxcluster", "sklearn", "matplotlib", "pathspec")
PLAIN = re.compile("[A-Za-z0-9/._+@,=\x80-\U0010ffff-]+")  # as in tools/venv.sh
NOTE = (
    "{name} is a variable of the inventory or of a play, and {playbooks} ignores this variable. To "
    "set the knob, use -e {name}=..., or {full} in the inventory"
)
ATTACH = (
    "attach is a variable of the inventory or of a play, but train.yml accepts attach only as "
    "-e attach=<job>: rename the variable"
)


class ActionModule(NodeTask):
    """Check the controller, or the connection to one node, before a play."""

    TRANSFERS_FILES = False

    def run(self, tmp: object = None, task_vars: TaskVars = None) -> TaskResult:
        """Run one task and return its result to Ansible."""
        result = super(ActionModule, self).run(tmp, task_vars)
        problem = refused_package()
        if problem:
            return dict(result, failed=True, msg=problem)
        try:
            given = arguments.decode(
                preflight_arguments.Arguments, "mxcluster_preflight", self._task.args
            )
        except BadInput as refusal:
            return dict(result, failed=True, msg=str(refusal))
        if isinstance(given, preflight_arguments.Connection):
            return dict(result, **self._connect(given, task_vars))
        # The callback keeps the log of the run in this folder.
        result["state_dir"] = "" if refused_paths(given.paths) else next(iter(given.paths), "")
        return dict(result, **self._check_controller(given, task_vars))

    def _connect(self, given: "preflight_arguments.Connection", task_vars: TaskVars) -> TaskResult:
        """Open Ansible's connection to the node, and check the user and the Python on the node.

        Returns the task's result, which may be a failure.
        """
        began = time.time()
        try:
            login = self.check_connection(given, task_vars)[0]
        except (BadInput, NoLogin) as error:
            if given.required or isinstance(error, BadInput):
                return {"failed": True, "changed": False, "msg": str(error)}
            self._display.display("no answer from a node: %s" % error, color=C.COLOR_WARN)
            return {"changed": False, "lost": {"since": began, "why": str(error)}}
        return dict(login.encode(), changed=False)

    def _check_controller(
        self, given: "preflight_arguments.Controller", task_vars: TaskVars
    ) -> TaskResult:
        """Check the controller, the inventory and the extra variables, and write known_hosts.

        Returns {"changed", "notes"}, or a failure with the first problem.
        """
        needed, groups = given.groups, task_vars["groups"]
        nodes = list(dict.fromkeys(host for group in needed for host in groups.get(group, ())))
        judged = nodes + [
            task_vars["inventory_hostname"]
        ]  # this host's variables apply in the controller's plays
        problem = refused_paths([PROJECT, sys.executable, *given.paths])
        problem = problem or refused_facts(C.config.get_config_value("INJECT_FACTS_AS_VARS"))
        if problem:
            return {"failed": True, "msg": problem}
        documented, hostvars = role_specs.documented(PROJECT), task_vars["hostvars"]
        variables = {host: hostvars.raw_get(host) for host in judged}
        problem, notes = self._names(task_vars, documented)
        misspelt = self._inventory_names(given, task_vars, documented)
        notes += misspelt.notes
        problem = (
            problem
            or "\n".join(misspelt.problems)
            or checks.refused_groups(
                needed, groups, task_vars.get("ansible_inventory_sources") or []
            )
            or checks.refused_forks(int(task_vars["ansible_forks"]), len(nodes))
            or checks.refused_strategy(C.DEFAULT_STRATEGY)
            or checks.refused_values(documented, variables)
            or checks.refused_templates(
                documented,
                variables,
                os.listdir(os.path.join(PROJECT, "roles")),
                lambda value, host: self._evaluate(value, dict(task_vars, **variables[host])),
            )
        )
        if problem:
            return {"failed": True, "msg": problem}
        try:
            block = ssh_mesh.of_the_controller(of_hosts(nodes, ssh_mesh.of_ssh(hostvars, nodes)))
        except BadInput as refusal:
            return {"failed": True, "msg": str(refusal)}
        # Check mode writes the host keys too, because ssh needs the keys to connect to the nodes.
        changed = checks.write_known_hosts(given.known_hosts, given.name, block)
        return {"changed": changed, "notes": notes}

    def _inventory_names(
        self,
        given: "preflight_arguments.Controller",
        task_vars: TaskVars,
        documented: "role_specs.Options",
    ) -> "inventory_names.Found":
        """Return the refusals and the notes about the variables of the inventory's files.

        Args: `documented` {variable: its argument spec} of all roles.
        """
        found = inventory_names.check(
            checks.names_of_files(task_vars["hostvars"]),
            documented,
            os.listdir(os.path.join(PROJECT, "roles")),
            given.site_variables,
        )
        if "train.yml" not in map(os.path.basename, context.CLIARGS.get("args") or ()):
            for note in found.notes:
                self._display.display("note: " + note)
        return found

    def _evaluate(self, value: object, variables: TaskVars) -> None:
        """Evaluate the templates in `value`. AnsibleUndefinedVariable for an undefined variable."""
        self._templar.copy_with_new_env(available_variables=variables).template(value)

    def _names(
        self, task_vars: TaskVars, documented: "role_specs.Options"
    ) -> Tuple[Optional[str], List[str]]:
        """Return (problems, notes) about the names of extra variables and of knobs.

        The problems are one text, or None for valid names. Each note is one line.

        Args: `documented` {variable: its argument spec} of all roles.
        """
        playbooks = [
            checks.own_playbook(path, PROJECT) for path in context.CLIARGS.get("args") or ()
        ]
        if not all(playbooks):  # a user's own playbook may read any variable
            return None, []
        given = load_extra_vars(self._loader)
        read = {name for playbook in playbooks for name in knobs.PLAYBOOKS[playbook]}
        # A child run inherits the command line of its parent run, which has checked the names.
        of_parent = set(knobs.PLAYBOOKS.get(attempts.parent(), ())) - read
        names = [
            name for name in given if not name.startswith("ansible_") and name not in of_parent
        ]
        bare = sorted(
            name for name in read - set(given) - set(knobs.OF_A_HOST) if name in task_vars
        )
        if "attach" in bare:
            return ATTACH, []
        problems = (
            knobs.unknown(
                names, playbooks, documented, checks.known_names(given, task_vars["hostvars"])
            )
            if set(names) - read
            else []
        )
        if given.get("attach"):
            problems += knobs.beside_attach(names)
        problems += refused_of_playbooks(given, lambda text: self._templar.template(text))
        notes = [
            NOTE.format(name=name, playbooks=" and ".join(playbooks), full=checks.full_name(name))
            for name in bare
            if checks.full_name(name)
        ]
        # train.yml itself shows the notes together with the plan.
        for note in notes if "train.yml" not in playbooks else []:
            self._display.display("note: " + note)
        return "\n".join(problems) or None, notes


def refused_package() -> Optional[str]:
    """Return an error message about this controller's Python or packages, else None."""
    return refused_controller(
        CORE,
        platform.python_version(),
        platform.system(),
        platform.machine(),
        [
            name
            for name in PACKAGES
            if not importlib.util.find_spec(name) or (name, knobs) == ("mxcluster", None)
        ],
    )


def refused_paths(paths: Sequence[str]) -> Optional[str]:
    """Return an error message if a path has a character that breaks programs, else None."""
    awkward = ['"%s"' % path for path in dict.fromkeys(paths) if not PLAIN.fullmatch(path)]
    return (
        awkward
        and (
            "The path %s contains a space or another character that breaks programs. Move the "
            "project, rename the folder of the inventory, or change mxcluster_home. Use only "
            "letters, digits and / . _ - + @ , =." % ", ".join(awkward)
        )
        or None
    )


def refused_controller(
    core: str, python: str, system: str, machine: str, missing: Sequence[str]
) -> Optional[str]:
    """Return an error message about an unsuitable controller, or None for a suitable controller.

    Args: `core` the version of ansible-core; `python` the version of Python; `system` and `machine`
    as the module platform returns them; `missing` the names of the missing packages.
    """
    cure = "Run `make venv`, then `source .venv/bin/activate`."
    if tuple(int(part) for part in core.split(".")[:2]) < OLDEST_CORE:
        return "This is ansible-core %s; mxcluster needs 2.16 or newer. %s" % (core, cure)
    if not (3, 10) <= tuple(int(part) for part in python.split(".")[:2]) <= (3, 13) or (
        system,
        machine,
    ) != ("Linux", "x86_64"):
        return (
            "The controller runs Python %s on %s %s; mxcluster needs Python 3.10 to 3.13 on Linux "
            "x86_64. Run `make venv PYTHON=/path/to/python3.12` on a Linux x86_64 host."
            % (python, system, machine)
        )
    if missing:
        return "%s cannot import %s. %s" % (sys.executable, ", ".join(missing), cure)
    return None


def refused_facts(injected: bool) -> Optional[str]:
    """Return an error message if each fact of a node is also a variable, else None.

    A node could then replace variables of the inventory and of the roles, such as
    mxcluster_state_dir, a folder on the controller.

    Args: `injected` Ansible's setting inject_facts_as_vars.
    """
    if not injected:
        return None
    return (
        "Ansible's setting inject_facts_as_vars is on, so a node could replace variables of the "
        "inventory by facts of the same names. Run the playbook in the folder %s, because its "
        "ansible.cfg turns the setting off. Or write inject_facts_as_vars = False in your own "
        "ansible.cfg." % PROJECT
    )


def refused_of_playbooks(given: TaskVars, template: Callable[[object], object]) -> List[str]:
    """Return a message for each wrong value of a knob that belongs to a playbook.

    The playbooks read these knobs with `default`, which would hide an undefined variable.

    Args: `given` {name: value} the extra variables; `template` evaluates a template.
    """
    problems = []
    for name, option in knobs_of(knobs.PlaybookKnobs).items():
        try:
            value = given.get(name)
            value_of(option, value if is_plain(value) else template(value))
        except BadInput as refusal:
            problems.append(str(refusal))
        except AnsibleError as error:
            problems.append(
                "-e %s is refused, because its template cannot be evaluated (%s): define the "
                "variables of the template, or remove %s" % (name, error, name)
            )
    return problems
