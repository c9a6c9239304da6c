"""What must be so before any play starts: refuses, on the controller alone and before anything is touched, what cannot work.

Looks at the project's path, the controller's Python, the names given with -e (what nothing reads is refused), the inventory, and
the values that it gives to the roles' variables; then lets ssh believe the host keys that the inventory gives.

The result holds `notes`: variables of the inventory that have the short name of a knob. They are no knobs.
"""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import fcntl
import importlib.util
import os
import platform
import re
import sys

from ansible import __version__ as CORE
from ansible import context
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.yaml.objects import AnsibleVaultEncryptedUnicode
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

try:
    from mxcluster import knobs, mesh, specs
except ImportError:  # `refused_controller` says it
    knobs = mesh = specs = None

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
PACKAGES = ("mxcluster", "sklearn", "matplotlib")
PLAIN = re.compile("[A-Za-z0-9/._+@,=\x80-\U0010ffff-]+")  # as tools/venv.sh
NOTE = ("{name} is a variable of the inventory or of a play, and no knob of {playbooks}: the knob is -e {name}=..., or "
        "{full} in the inventory")
ATTACH = "attach is a variable of the inventory or of a play: train.yml takes it with -e attach=<job> alone; rename it"


class ActionModule(ActionBase):
    """Runs once, on the controller; no host is contacted.

    Arguments: `groups`, those of the inventory that the playbooks need; `paths`, which become interpreters, search paths and
    options; `known_hosts`, the file that ssh reads beside the person's own, and `name` of this inventory's block in it.
    """

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super(ActionModule, self).run(tmp, task_vars)
        given = self._task.args
        needed, groups = given["groups"], task_vars["groups"]
        nodes = list(dict.fromkeys(host for group in needed for host in groups.get(group, ())))
        judged = nodes + [task_vars["inventory_hostname"]]  # whose variables hold in the controller's plays
        problem = (refused_paths([PROJECT, sys.executable] + given["paths"])
                   or refused_controller(CORE, platform.python_version(), platform.system(), platform.machine(),
                                         [name for name in PACKAGES if not importlib.util.find_spec(name)]))
        if problem:
            return dict(result, failed=True, msg=problem)
        documented, hostvars = specs.documented(PROJECT), task_vars["hostvars"]
        problem, notes = self._names(task_vars, documented)
        problem = (problem or refused_groups(needed, groups, task_vars.get("ansible_inventory_sources") or [])
                   or refused_forks(int(task_vars["ansible_forks"]), len(nodes))
                   or refused_values(documented, {host: hostvars.raw_get(host) for host in judged}))
        if problem:
            return dict(result, failed=True, msg=problem)
        # In check mode too: it only says whom to believe, and without it no node could be asked.
        changed = believe(given["known_hosts"], given["name"], mesh.of_the_controller(mesh.of_ssh(hostvars, nodes)))
        return dict(result, changed=changed, notes=notes)

    def _names(self, task_vars, documented):
        """(what is wrong with the names of the extra variables, or None; the notes)."""
        playbooks = [ours(path) for path in context.CLIARGS.get("args") or ()]
        if not all(playbooks):  # a playbook of the site's own: only its author knows what it reads
            return None, []
        given = load_extra_vars(self._loader)
        names = [name for name in given if not name.startswith("ansible_")]
        read = {name for playbook in playbooks for name in knobs.PLAYBOOKS[playbook]}
        bare = sorted(name for name in read - set(given) - set(knobs.OF_A_HOST) if name in task_vars)
        if "attach" in bare:
            return ATTACH, []
        problems = knobs.unknown(names, playbooks, documented, known(given, task_vars["hostvars"])) if set(names) - read else []
        if given.get("attach"):
            problems += knobs.beside_attach(names)
        notes = [NOTE.format(name=name, playbooks=" and ".join(playbooks), full=full(name)) for name in bare if full(name)]
        for note in notes if "train.yml" not in playbooks else []:  # the plan shows them
            self._display.display("note: " + note)
        return "\n".join(problems) or None, notes


def refused_paths(paths):
    """What to say of paths that programs stop at; None if there is none."""
    awkward = ['"%s"' % path for path in dict.fromkeys(paths) if not PLAIN.fullmatch(path)]
    return awkward and (
        "The path %s holds a space or another sign that programs stop at. Move the project, or give the folder (the "
        "inventory's, mxcluster_home) another name: letters, digits and / . _ - + @ , = alone." % ", ".join(awkward)) or None


def refused_controller(core, python, system, machine, missing):
    """What to say of a controller with these versions and without these packages; None if it will do."""
    cure = "Run `make venv`, then `source .venv/bin/activate`."
    if core.split(".")[:2] != ["2", "16"]:
        return ("This is ansible-core %s; mxcluster needs 2.16, the last that manages nodes with Python 2.7 and 3.6. %s"
                % (core, cure))
    if not (3, 10) <= tuple(int(part) for part in python.split(".")[:2]) < (3, 13) or (system, machine) != ("Linux", "x86_64"):
        return ("The controller runs Python %s on %s %s; mxcluster needs Python 3.10, 3.11 or 3.12 on Linux x86_64. Run "
                "`make venv PYTHON=/path/to/python3.11` on such a machine." % (python, system, machine))
    if missing:
        return "%s cannot import %s. %s" % (sys.executable, ", ".join(missing), cure)
    return None


def refused_groups(needed, groups, sources):
    """What to say of a group of the inventory that is missing or empty; None if all are there."""
    for group in needed:
        if not groups.get(group):
            return ("The inventory group %s %s (%s). mxcluster needs %s, each with a host or more; one host may be in all of "
                    "them. An inventory to copy: inventory/example."
                    % (group, "has no hosts" if group in groups else "does not exist", ", ".join(sources), ", ".join(needed)))
    return None


def refused_forks(forks, nodes):
    """What to say of too few forks for so many nodes; None if they will do."""
    if forks >= nodes:
        return None
    return ("forks is %d, and there are %d nodes: waiting for a job holds one fork for each node to the end. Set forks in "
            "ansible.cfg, or run with --forks %d." % (forks, nodes, nodes))


def refused_values(documented, variables):
    """What to say of variables of roles that are of the wrong type, or none of the choices; None if all will do.

    The roles' own defaults are right. So only what the inventory, or -e, says is looked at: here, once for all roles and hosts.
    What a template will give is not known yet, and what a vault holds stays closed.
    """
    problems = {}
    for host, values in variables.items():
        given = {name: values[name] for name in documented if name in values and is_plain(values[name])}
        found = ArgumentSpecValidator({name: documented[name] for name in given}).validate(given)
        for text in found.error_messages:
            problems.setdefault(text, []).append(host)
    return "\n".join("%s (%s)" % (text, ", ".join(hosts)) for text, hosts in problems.items()) or None


def is_plain(value):
    """Whether a value is what it will be: neither a template nor in a vault, in no part of it."""
    if isinstance(value, (dict, list, tuple)):
        return all(is_plain(part) for part in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, AnsibleVaultEncryptedUnicode) and not (isinstance(value, str) and re.search(r"\{[{%]", value))


def believe(path, name, lines):
    """Let ssh believe these lines of known_hosts, instead of what an earlier run has written for this inventory."""
    if not lines and not os.path.exists(path):
        return False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # two inventories at once have both their blocks
        before = ""
        if os.path.exists(path):
            with open(path) as stream:
                before = stream.read()
        after = with_block(before, name, lines)
        if after == before:
            return False
        with open(os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            stream.write(after)
        os.replace(path + ".part", path)
    finally:
        os.close(folder)
    return True


def with_block(text, name, lines):
    """The text with this inventory's block as its last part, or without one if there are no lines (pure)."""
    first, last = ("# %s of the inventory %s\n" % (mark, name) for mark in ("BEGIN", "END"))
    rest = re.sub("%s(.*\n)*?%s" % (re.escape(first), re.escape(last)), "", text)
    return rest + (first + lines + "\n" + last if lines else "")


def ours(path):
    """The name of a playbook of this project's, None for another."""
    folder, name = os.path.split(os.path.realpath(path))
    return name if folder in (PROJECT, os.path.join(PROJECT, "playbooks")) and name in knobs.PLAYBOOKS else None


def full(name):
    """The variable of a knob; None if it can be given with -e alone."""
    return next(("%s_%s" % (role, name) for role in sorted(knobs.SHORT) if name in knobs.SHORT[role]), None)


def known(given, hostvars):
    """The names that the inventory defines, and those that it, or another variable of `given`, uses in a template."""
    manager, inventory = hostvars._variable_manager, hostvars._inventory
    extra, found, texts = manager._extra_vars, set(), list(strings(given))
    manager._extra_vars = {}  # or else all that was given would look like the inventory's
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


def strings(value):
    """All strings in a value of YAML; what a vault holds stays closed."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            for text in strings(part):
                yield text
