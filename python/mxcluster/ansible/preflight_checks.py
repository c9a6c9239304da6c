"""Check the inventory, the values of the roles' variables and the names given with -e.

The functions return an error message, or None without an error. The action plugin
mxcluster_preflight calls them before any change of a node.
"""

import fcntl
import os
import re
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ansible.errors import AnsibleError, AnsibleUndefinedVariable
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from mxcluster.ansible import knobs
from mxcluster.ansible.edge import HostVars, TaskVars
from mxcluster.ansible.role_specs import Options
from mxcluster.errors import shown
from mxcluster.file_io import replace

try:
    from ansible.parsing.vault import EncryptedString as Vaulted  # ansible-core 2.19 and newer
except ImportError:
    from ansible.parsing.yaml.objects import AnsibleVaultEncryptedUnicode as Vaulted

Values = Mapping[str, HostVars]  # {host: its variables, or {name: value}}

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


def refused_groups(
    needed: Sequence[str], groups: Mapping[str, Sequence[str]], sources: Sequence[str]
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


def refused_values(documented: Options, variables: Values) -> Optional[str]:
    """Return an error message about role variables with a wrong type or choice, else None.

    The defaults of the roles are valid, so the function checks only values of the inventory and of
    -e. The function skips templates, which Ansible evaluates later, and encrypted vaults.
    """
    problems: Dict[str, List[str]] = {}
    for host, values in variables.items():
        given = {
            name: values[name] for name in documented if name in values and is_plain(values[name])
        }
        specs = {name: documented[name].encode() for name in given}
        found = ArgumentSpecValidator(specs).validate(given)
        if not found.error_messages:
            continue
        for name, value in given.items():
            spec = ArgumentSpecValidator({name: specs[name]})
            for text in spec.validate({name: value}).error_messages:
                if "must be one of" not in text:  # Ansible does not show the value
                    text = "%s=%s is refused: it must be %s" % (
                        name,
                        shown(value),
                        TYPES.get(documented[name].type or "str", "of another type"),
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
    documented: Options,
    variables: Values,
    roles: Sequence[str],
    evaluate: Callable[[object, str], None],
) -> Optional[str]:
    """Return an error message about role variables that use undefined variables, else None.

    Roles read some variables of other roles with `default`, which would hide such a fault. The
    filter mxcluster_knobs checks the knobs, because a playbook reads few of them. The function
    skips templates whose variables get their values later.

    Args: `roles` the names of all roles; `evaluate` evaluates the templates in a value on a host,
    and raises AnsibleUndefinedVariable.
    """
    of_roles = tuple(role + "_" for role in roles) + ("__",)
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
    return undefined(problems) or None


def undefined(problems: Mapping[Tuple[str, str], Sequence[str]]) -> str:
    """Return an error message about variables whose templates use an undefined variable.

    Args: `problems` {(variable, Ansible's error): hosts, [] for a variable of all hosts}.
    """
    return "\n".join(
        "%s%s is refused, because its template uses an undefined variable (%s): define this "
        "variable, correct the template, or remove %s"
        % (name, " (on %s)" % ", ".join(hosts) if hosts else "", error, name)
        for (name, error), hosts in problems.items()
    )


def is_plain(value: object) -> bool:
    """Return False if `value` (of YAML) contains a template or a vaulted string, else True."""
    if isinstance(value, (dict, list, tuple)):
        return all(
            is_plain(part) for part in (value.values() if isinstance(value, dict) else value)
        )
    return not isinstance(value, Vaulted) and not (
        isinstance(value, str) and re.search(r"\{[{%]", value)
    )


def write_known_hosts(path: str, name: str, lines: str) -> bool:
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


def own_playbook(path: str, project: str) -> Optional[str]:
    """Return the file name of the playbook `path` if it belongs to `project`, else None."""
    folder, name = os.path.split(os.path.realpath(path))
    is_own = folder in (project, os.path.join(project, "playbooks")) and name in knobs.PLAYBOOKS
    return name if is_own else None


def full_name(name: str) -> Optional[str]:
    """Return the variable of the knob with the short name `name`, such as train_job_kv for kv.

    Returns None for a knob without a variable, which the user can set with -e only.
    """
    return next(
        ("%s_%s" % (role, name) for role in sorted(knobs.SHORT) if name in knobs.SHORT[role]), None
    )


def known_names(given: TaskVars, hostvars: HostVars) -> Set[str]:
    """Return the names of the inventory's variables and of the extra variables in templates.

    The function searches the templates of the inventory and of the extra variables.

    Args: `given` {name: value} the extra variables.
    """
    of_files = _of_files(hostvars)
    found = {name for of_host in of_files for name in of_host}
    return found | set(given) & words_of([given, *of_files], {})


def names_of_files(hostvars: HostVars) -> Set[str]:
    """Return the names that the inventory, group_vars and host_vars define for any host."""
    return {name for of_host in _of_files(hostvars) for name in of_host}


def _of_files(hostvars: HostVars) -> List[TaskVars]:
    """Return the variables of each host of the inventory, without those of -e."""
    manager, inventory = hostvars._variable_manager, hostvars._inventory
    extra = manager._extra_vars  # with these variables get_vars would return every name of -e
    manager._extra_vars = {}
    try:
        return [
            manager.get_vars(host=host, include_hostvars=False)
            for host in inventory.get_hosts(ignore_limits=True)
        ]
    finally:
        manager._extra_vars = extra


def words_of(value: object, variables: TaskVars) -> Set[str]:
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


def strings(value: object) -> Iterator[str]:
    """Yield all strings in `value` (of YAML), except keys of dicts and vaulted strings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)
