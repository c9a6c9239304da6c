"""Refuse variables that were given with -e and that nothing reads, before anything is touched.

The result holds `notes`: variables of the inventory that have the short name of a knob. They are no knobs.
"""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import glob
import os
import re

import yaml
from ansible import context
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from mxcluster import knobs

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
NOTE = ("{name} is a variable of the inventory or of a play, and no knob of {playbooks}: the knob is -e {name}=..., or "
        "{full} in the inventory")
ATTACH = "attach is a variable of the inventory or of a play: train.yml takes it with -e attach=<job> alone; rename it"


class ActionModule(ActionBase):
    """Runs once, on the controller; no host is contacted."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super(ActionModule, self).run(tmp, task_vars)
        playbooks = [ours(path) for path in context.CLIARGS.get("args") or ()]
        if not all(playbooks):  # a playbook of the site's own: only its author knows what it reads
            return dict(result, changed=False, notes=[])
        given = load_extra_vars(self._loader)
        names = [name for name in given if not name.startswith("ansible_")]
        read = {name for playbook in playbooks for name in knobs.PLAYBOOKS[playbook]}
        bare = sorted(name for name in read - set(given) - set(knobs.OF_A_HOST) if name in task_vars)
        if "attach" in bare:
            return dict(result, failed=True, msg=ATTACH)
        problems = knobs.unknown(names, playbooks, documented(), known(given, task_vars["hostvars"])) if set(names) - read else []
        if given.get("attach"):
            problems += knobs.beside_attach(names)
        if problems:
            return dict(result, failed=True, msg="\n".join(problems))
        notes = [NOTE.format(name=name, playbooks=" and ".join(playbooks), full=full(name)) for name in bare if full(name)]
        for note in notes if "train.yml" not in playbooks else []:  # the plan shows them
            self._display.display("note: " + note)
        return dict(result, changed=False, notes=notes)


def ours(path):
    """The name of a playbook of this project's, None for another."""
    folder, name = os.path.split(os.path.realpath(path))
    return name if folder in (PROJECT, os.path.join(PROJECT, "playbooks")) and name in knobs.PLAYBOOKS else None


def full(name):
    """The variable of a knob; None if it can be given with -e alone."""
    return next(("%s_%s" % (role, name) for role in sorted(knobs.SHORT) if name in knobs.SHORT[role]), None)


def documented():
    """The names of all variables in the argument specs of the roles."""
    found = set()
    for path in glob.glob(os.path.join(glob.escape(PROJECT), "roles", "*", "meta", "argument_specs.yml")):
        with open(path) as stream:
            for entry in yaml.load(stream, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["argument_specs"].values():
                found.update(entry.get("options") or {})
    return found


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
