"""Every condition of a role or playbook is True or False by its form.

ansible-core 2.16 prints a deprecation warning for a condition that is a list or a string, and 2.19
refuses it.
"""

import importlib
import pathlib
import re

import jinja2
import pytest
import yaml
from jinja2 import nodes

from mxcluster.ansible import arguments, controller_task
from mxcluster.model import module_answers, protocol, shapes
from mxcluster.model.job_knobs import Options

PROJECT = pathlib.Path(__file__).resolve().parents[3]
KEYWORDS = ("when", "until", "failed_when", "changed_when", "that")
FILES = sorted(
    path
    for folder in ("playbooks", "roles", "molecule")
    for path in PROJECT.glob(folder + "/**/*.yml")
)
PARSE = jinja2.Environment().parse


def returned_flags():
    found = {"changed", "failed", "exists"}  # of every module, and of ansible.builtin.stat
    options = Options()
    found.update(name for name, value in vars(options).items() if isinstance(value, bool))
    for path in PROJECT.glob("plugins/action/*.py"):
        importlib.import_module("plugins.action." + path.stem)
    answers = [command.ANSWER for command in protocol.COMMANDS.values()]
    modules = module_answers.ANSWERS.values()
    for cls in [*controller_task.Result.__subclasses__(), *modules, *answers]:
        flags = (arguments.flag, shapes.flag)
        found.update(name for name, item in cls.FIELDS.items() if item.shape in flags)
    return found | {"ended", "has", "spooled"}  # from the action plugin mxcluster_node, and root


FLAGS = returned_flags()
VARS = {
    name: value
    for path in PROJECT.glob("roles/*/vars/main.yml")
    for name, value in yaml.safe_load(path.read_text()).items()
}


def is_boolean(node):
    """Return True if an expression is True or False for any variables."""
    if isinstance(node, nodes.Const):
        return isinstance(node.value, bool)
    if isinstance(node, (nodes.Compare, nodes.Not, nodes.Test)):
        return True
    if isinstance(node, (nodes.And, nodes.Or)):
        return is_boolean(node.left) and is_boolean(node.right)
    if isinstance(node, nodes.Filter):
        return (
            node.name == "bool"
            or node.name == "default"
            and is_boolean(node.node)
            and is_boolean(node.args[0])
        )
    if isinstance(node, nodes.Getattr):
        return node.attr in FLAGS
    if isinstance(node, nodes.Name):
        return node.name == "ansible_check_mode" or is_boolean_text(VARS.get(node.name, ""))
    return False


def is_boolean_text(text):
    """Return True if a variable's template is one boolean expression."""
    if isinstance(text, bool):
        return True
    text = str(text).strip()
    return text.startswith("{{") and text.endswith("}}") and is_boolean_expression(text[2:-2])


def is_boolean_expression(text):
    """Return True if `text` is boolean as a condition, an expression without braces."""
    if isinstance(text, bool):
        return True
    return is_boolean(PARSE("{{ %s }}" % text).body[0].nodes[0])


def conditions(data):
    """Yield all conditions in the tasks and plays of a file."""
    if isinstance(data, list):
        for item in data:
            yield from conditions(item)
    elif isinstance(data, dict):
        for key, value in data.items():
            if key in KEYWORDS:
                yield from value if isinstance(value, list) else [value]
            else:
                yield from conditions(value)


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in FILES
        if "tasks" in path.parts
        or "handlers" in path.parts
        or path.parent.name in ("playbooks", "shared", "el7")
    ],
    ids=lambda path: str(path.relative_to(PROJECT)),
)
def test_conditions_are_true_or_false(path):
    wrong = [
        text
        for text in conditions(yaml.safe_load(path.read_text()))
        if not is_boolean_expression(text)
    ]
    assert not wrong, (
        "not True or False by form (compare it, or use `| length > 0`, `is truthy`, `| bool`): %s"
        % wrong
    )


QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
INNERMOST = re.compile(r"[(\[{]([^()\[\]{}]*)[)\]}]")


def mixes_and_with_or(text):
    """Return True if the meaning of an expression depends on `and` binding before `or`."""
    parts, text = [], QUOTED.sub("", text)
    while INNERMOST.search(text):
        parts += INNERMOST.findall(text)
        text = INNERMOST.sub("", text)
    operands = [
        operand for part in parts + [text] for operand in re.split(r"\bif\b|\belse\b|[,:]", part)
    ]
    return any({"and", "or"} <= set(operand.split()) for operand in operands)


def expressions(data):
    """Yield all conditions and all templates of a file."""
    if isinstance(data, str):
        yield from re.findall(r"{{(.*?)}}", data, re.DOTALL)
    elif isinstance(data, list):
        for item in data:
            yield from expressions(item)
    elif isinstance(data, dict):
        for key, value in data.items():
            if key in KEYWORDS:
                yield from map(str, value if isinstance(value, list) else [value])
            else:
                yield from expressions(value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_parentheses_separate_and_from_or(path):
    assert [
        text for text in expressions(yaml.safe_load(path.read_text())) if mixes_and_with_or(text)
    ] == []
