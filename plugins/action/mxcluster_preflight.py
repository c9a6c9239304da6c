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

import fcntl
import importlib.util
import os
import platform
import re
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ansible import __version__ as CORE
from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleError, AnsibleUndefinedVariable
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

try:
    from ansible.parsing.vault import EncryptedString as Vaulted  # ansible-core 2.19 and newer
except ImportError:
    from ansible.parsing.yaml.objects import AnsibleVaultEncryptedUnicode as Vaulted

try:
    from mxcluster.ansible import arguments, attempts, knobs, preflight_arguments, role_specs
    from mxcluster.ansible.node_task import NodeTask
    from mxcluster.cluster import ssh_mesh
    from mxcluster.errors import BadInput, shown
    from mxcluster.file_io import replace
    from mxcluster.model.host_variables import of_hosts
    from mxcluster.model.knob import knobs_of, value_of
except ImportError:  # `refused_controller` reports the missing package, for all plugins
    attempts = knobs = ssh_mesh = role_specs = None
    NodeTask = ActionBase

Json = Dict[str, Any]
HostVars = Any  # ansible.vars.hostvars.HostVars

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
OLDEST_CORE = (2, 16)
PACKAGES = ("mxcluster", "sklearn", "matplotlib")
PLAIN = re.compile("[A-Za-z0-9/._+@,=\x80-\U0010ffff-]+")  # as in tools/venv.sh
NOTE = (
    "{name} is a variable of the inventory or of a play, and {playbooks} ignores this variable. To "
    "set the knob, use -e {name}=..., or {full} in the inventory"
)
# The types of roles' variables in messages.
TYPES = {
    "bool": "true or false",
    "dict": "a dict",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "str": "a text",
}
STRATEGIES = ("free", "host_pinned")  # the playbooks need all nodes in step
# Words of templates that have no value yet, or whose evaluation has effects.
LATER = {"ansible_facts", "hostvars", "lookup", "query", "q"}
ATTACH = (
    "attach is a variable of the inventory or of a play, but train.yml accepts attach only as "
    "-e attach=<job>: rename the variable"
)


class ActionModule(NodeTask):
    """Check the controller, or the connection to one node, before a play."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> Json:
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
        return dict(result, **self._check_controller(given, task_vars))

    def _connect(self, given: "preflight_arguments.Connection", task_vars: Json) -> Json:
        """Open Ansible's connection to the node, and check the user and the Python on the node.

        Returns the task's result, which may be a failure.
        """
        asked = time.time()
        told, _ = self.hello(given.encode(), task_vars)
        if told.get("failed") and not told.pop("refused", False) and not given.required:
            self._display.display("no answer from a node: %s" % told["msg"], color=C.COLOR_WARN)
            told = {"lost": {"since": asked, "why": told["msg"]}}
        return dict(told, changed=False)

    def _check_controller(self, given: "preflight_arguments.Controller", task_vars: Json) -> Json:
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
        problem = (
            problem
            or refused_groups(needed, groups, task_vars.get("ansible_inventory_sources") or [])
            or refused_forks(int(task_vars["ansible_forks"]), len(nodes))
            or refused_strategy(C.DEFAULT_STRATEGY)
            or refused_values(documented, variables)
            or refused_templates(
                documented,
                variables,
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
        changed = believe(given.known_hosts, given.name, block)
        return {"changed": changed, "notes": notes}

    def _evaluate(self, value: Any, variables: Json) -> None:
        """Evaluate the templates in `value`. AnsibleUndefinedVariable for an undefined variable."""
        self._templar.copy_with_new_env(available_variables=variables).template(value)

    def _names(
        self, task_vars: Json, documented: Dict[str, Json]
    ) -> Tuple[Optional[str], List[str]]:
        """Return (problems, notes) about the names of extra variables and of knobs.

        The problems are one text, or None for valid names. Each note is one line.

        Args: `documented` {variable: its argument spec} of all roles.
        """
        playbooks = [ours(path) for path in context.CLIARGS.get("args") or ()]
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
            knobs.unknown(names, playbooks, documented, known(given, task_vars["hostvars"]))
            if set(names) - read
            else []
        )
        if given.get("attach"):
            problems += knobs.beside_attach(names)
        problems += refused_of_playbooks(given, lambda text: self._templar.template(text))
        notes = [
            NOTE.format(name=name, playbooks=" and ".join(playbooks), full=full(name))
            for name in bare
            if full(name)
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


def refused_groups(
    needed: Sequence[str], groups: Dict[str, List[str]], sources: Sequence[str]
) -> Optional[str]:
    """Return an error message about a missing or empty group, or None if all groups have hosts.

    Args: `needed` the names of the required groups; `groups` {name: hosts}; `sources` the paths of
    the inventory.
    """
    if needed and not groups.get("all"):
        return (
            "Ansible has read no host from the inventory %s: see its warnings above, and correct "
            "the path after -i or the content. In a folder, Ansible ignores files such as *.ini."
            % ", ".join(sources)
        )
    for group in needed:
        if not groups.get(group):
            return (
                "The inventory group %s %s (%s). mxcluster needs the groups %s, each "
                "with at least one host. A host may be in several groups. Add hosts to the group, "
                "or begin with a copy of inventory/example."
                % (
                    group,
                    "has no hosts" if group in groups else "does not exist",
                    ", ".join(sources),
                    ", ".join(needed),
                )
            )
    return None


def refused_strategy(strategy: str) -> Optional[str]:
    """Return an error message about a strategy that lets nodes run ahead, else None."""
    if strategy.split(".")[-1] not in STRATEGIES:
        return None
    return (
        "strategy is %s, but the nodes of a job must go through the tasks together. Remove "
        "strategy from ansible.cfg, or ANSIBLE_STRATEGY from the environment." % strategy
    )


def refused_forks(forks: int, nodes: int) -> Optional[str]:
    """Return an error message if `forks` is less than `nodes`, else None."""
    if forks >= nodes:
        return None
    return (
        "forks is %d, and there are %d nodes, but a job needs one fork for each node. Set forks in "
        "ansible.cfg, or run with --forks %d." % (forks, nodes, nodes)
    )


def refused_values(documented: Dict[str, Json], variables: Dict[str, Json]) -> Optional[str]:
    """Return an error message about role variables with a wrong type or choice, else None.

    The defaults of the roles are valid, so the function checks only values of the inventory and of
    -e. The function skips templates, which Ansible evaluates later, and encrypted vaults.

    Args: `documented` {variable: its argument spec}; `variables` {host: {variable: value}}.
    """
    problems: Dict[str, List[str]] = {}
    for host, values in variables.items():
        given = {
            name: values[name] for name in documented if name in values and is_plain(values[name])
        }
        found = ArgumentSpecValidator({name: documented[name] for name in given}).validate(given)
        if not found.error_messages:
            continue
        for name, value in given.items():
            spec = {name: documented[name]}
            for text in ArgumentSpecValidator(spec).validate({name: value}).error_messages:
                if "must be one of" not in text:  # Ansible does not show the value
                    text = "%s=%s is refused: it must be %s" % (
                        name,
                        shown(value),
                        TYPES.get(documented[name].get("type"), "of another type"),
                    )
                problems.setdefault(text, []).append(host)
    return (
        "\n".join(
            "%s (on %s): correct this value in the inventory or in -e" % (text, ", ".join(hosts))
            for text, hosts in problems.items()
        )
        or None
    )


def refused_templates(
    documented: Dict[str, Json],
    variables: Dict[str, Json],
    evaluate: Callable[[Any, str], None],
) -> Optional[str]:
    """Return an error message about role variables that use undefined variables, else None.

    Roles read some variables of other roles with `default`, which would hide such a fault. The
    filter mxcluster_knobs checks the knobs, because a playbook reads few of them. The function
    skips templates whose variables get their values later.

    Args: `documented` {variable: its argument spec}; `variables` {host: {variable: value}};
    `evaluate` evaluates the templates in a value on a host, and raises AnsibleUndefinedVariable.
    """
    of_roles = tuple(role + "_" for role in os.listdir(os.path.join(PROJECT, "roles"))) + ("__",)
    of_knobs = tuple(role + "_" for role in knobs.SHORT)
    problems: Dict[Tuple[str, str], List[str]] = {}
    for host, values in variables.items():
        for name in documented:
            if name.startswith(of_knobs) or name not in values or is_plain(values[name]):
                continue
            words = words_of(values[name], values)
            if LATER & words or any(word.startswith(of_roles) for word in words - set(values)):
                continue
            try:
                evaluate(values[name], host)
            except AnsibleUndefinedVariable as error:
                problems.setdefault((name, str(error)), []).append(host)
            except AnsibleError:  # the role that reads the variable reports the error
                continue
    return (
        "\n".join(
            "%s (on %s) is refused, because its template uses an undefined variable (%s): define "
            "this variable, correct the template, or remove %s"
            % (name, ", ".join(hosts), error, name)
            for (name, error), hosts in problems.items()
        )
        or None
    )


def refused_of_playbooks(given: Json, template: Callable[[Any], Any]) -> List[str]:
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


def is_plain(value: Any) -> bool:
    """Return False if `value` (of YAML) contains a template or a vaulted string, else True."""
    if isinstance(value, (dict, list, tuple)):
        return all(
            is_plain(part) for part in (value.values() if isinstance(value, dict) else value)
        )
    return not isinstance(value, Vaulted) and not (
        isinstance(value, str) and re.search(r"\{[{%]", value)
    )


def believe(path: str, name: str, lines: str) -> bool:
    """Write the block of an inventory to the known_hosts file `path`, and return True on a change.

    The blocks of other inventories stay unchanged.

    Args: `name` the name of the inventory; `lines` the text of the block, "" to remove the block.
    """
    if not lines and not os.path.exists(path):
        return False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        # The lock keeps the blocks of both inventories in two concurrent runs.
        fcntl.flock(folder, fcntl.LOCK_EX)
        before = ""
        if os.path.exists(path):
            with open(path) as stream:
                before = stream.read()
        after = with_block(before, name, lines)
        if after == before:
            return False
        replace(path, after, 0o600)
    finally:
        os.close(folder)
    return True


def with_block(text: str, name: str, lines: str) -> str:
    """Return `text` with the block `lines` of the inventory `name`.

    The function replaces an earlier block of the same inventory in its place, so that a block
    without a change stays after a run with another inventory. A new block comes at the end. An
    empty `lines` removes the earlier block.
    """
    first, last = ("# %s of the inventory %s\n" % (mark, name) for mark in ("BEGIN", "END"))
    block = first + lines + "\n" + last if lines else ""
    earlier = "%s(.*\n)*?%s" % (re.escape(first), re.escape(last))
    after, count = re.subn(earlier, lambda found: block, text)
    return after if count else text + block


def ours(path: str) -> Optional[str]:
    """Return the file name of the playbook `path` if it belongs to this project, else None."""
    folder, name = os.path.split(os.path.realpath(path))
    return (
        name
        if folder in (PROJECT, os.path.join(PROJECT, "playbooks")) and name in knobs.PLAYBOOKS
        else None
    )


def full(name: str) -> Optional[str]:
    """Return the variable of the knob with the short name `name`, such as train_job_kv for kv.

    Returns None for a knob without a variable, which the user can set with -e only.
    """
    return next(
        ("%s_%s" % (role, name) for role in sorted(knobs.SHORT) if name in knobs.SHORT[role]), None
    )


def known(given: Json, hostvars: HostVars) -> Set[str]:
    """Return the names of the inventory's variables and of the extra variables in templates.

    The function searches the templates of the inventory and of the extra variables.

    Args: `given` {name: value} the extra variables.
    """
    manager, inventory = hostvars._variable_manager, hostvars._inventory
    extra, found, texts = manager._extra_vars, set(), list(strings(given))
    # With these variables get_vars would return every name given with -e.
    manager._extra_vars = {}
    try:
        for host in inventory.get_hosts(ignore_limits=True):
            of_host = manager.get_vars(host=host, include_hostvars=False)
            found.update(of_host)
            texts += strings(of_host)
    finally:
        manager._extra_vars = extra
    words = set()
    for template in re.findall(r"\{[{%].*?[}%]\}", "\n".join(texts), re.DOTALL):
        words.update(re.findall(r"\w+", template))
    return found | {name for name in given if name in words}


def words_of(value: Any, variables: Json) -> Set[str]:
    """Return all words of the templates in `value`, and in the variables that they use.

    Args: `variables` {name: value} of the host.
    """
    found: Set[str] = set()
    values = [value]
    while values:
        text = "\n".join(strings(values.pop()))
        for template in re.findall(r"\{[{%].*?[}%]\}", text, re.DOTALL):
            new = set(re.findall(r"\w+", template)) - found
            found |= new
            values += [variables[word] for word in sorted(new) if word in variables]
    return found


def strings(value: Any) -> Iterator[str]:
    """Yield all strings in `value` (of YAML), except keys of dicts and vaulted strings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            for text in strings(part):
                yield text
