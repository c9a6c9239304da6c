"""The arguments of our action plugins: the roles' tasks, and the values that Ansible gives."""

import importlib
import pathlib

import pytest
import yaml

from mxcluster.ansible import arguments, preflight_arguments
from mxcluster.errors import BadInput
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import Wrong
from tests import ansible_modules

PROJECT = pathlib.Path(__file__).resolve().parents[3]


def classes():
    """Return {name of a plugin: the class of its arguments}."""
    paths = sorted((PROJECT / "plugins" / "action").glob("*.py"))
    plugins = {path.stem: importlib.import_module("plugins.action." + path.stem) for path in paths}
    found = {name: getattr(plugin, "Arguments", None) for name, plugin in plugins.items()}
    found["mxcluster_preflight"] = preflight_arguments.Arguments
    return {name: cls for name, cls in found.items() if cls}


CLASSES = classes()


def calls(tasks):
    """Yield (plugin, arguments) of all tasks with a plugin of CLASSES."""
    for task in tasks or ():
        for name in CLASSES:
            if isinstance(task.get(name), dict):
                yield name, task[name]
        for part in ("block", "rescue", "always"):
            yield from calls(task.get(part))


CALLS = [
    (path, *call)
    for path in sorted((PROJECT / "roles").glob("*/tasks/*.yml"))
    for call in calls(yaml.safe_load(path.read_text()))
]


@pytest.mark.parametrize(
    "path, name, given", CALLS, ids=["%s-%s" % (path.stem, name) for path, name, _ in CALLS]
)
def test_a_task_gives_known_arguments_and_all_required_ones(path, name, given):
    cls = CLASSES[name]
    cls = cls.KINDS[given["command"]] if cls.KIND_KEY else cls
    assert cls.STRICT
    required = {name for name, item in cls.FIELDS.items() if item.is_required}
    assert required <= set(given) - {cls.KIND_KEY} <= set(cls.FIELDS), path


def test_each_plugin_with_arguments_has_a_task():
    # The tasks of mxcluster_drift, but one, give all arguments as one template.
    assert {name for _, name, _ in CALLS} == set(CLASSES)


class Int(int):
    """A number of ansible-core 2.19 and newer, which adds tags to values."""


class Str(str):
    """A string of ansible-core 2.19 and newer."""


class List(list):
    """A list of ansible-core 2.19 and newer."""


class Dict(dict):
    """A dict of ansible-core 2.19 and newer."""


@pytest.mark.parametrize(
    "shape, value, wanted",
    [
        (arguments.whole(0, 9), "5", 5),  # ansible-core 2.16
        (arguments.whole(0, 9), Int(5), 5),
        (arguments.real(0, 9), "1.5", 1.5),
        (arguments.flag, "True", True),
        (arguments.path, "~/$HOME", "/home/me//home/me"),
        (arguments.texts, List([Str("a, b"), Int(1)]), ["a, b", "1"]),
        (arguments.by_host, {"a": None, "b": Dict(c=1)}, {"a": None, "b": {"c": 1}}),
    ],
)
def test_the_values_of_ansible_are_accepted(shape, value, wanted, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert shape(value) == wanted


@pytest.mark.parametrize(
    "shape, value, what",
    [
        (arguments.whole(0, 9), "10", "a whole number from 0 to 9"),
        (arguments.real(0, 9), "nan", "a number from 0 to 9"),
        (arguments.path, None, "a string"),
        (arguments.texts, {"a": 1}, "a list"),
        (arguments.by_host, {"a": []}, "an object"),
    ],
)
def test_other_values_are_refused(shape, value, what):
    with pytest.raises(Wrong, match="is not " + what):
        shape(value)


class Arguments(Record, strict=True):
    forks: int = field(arguments.whole(0, 9))
    plan_only: bool = field(arguments.flag, default=False)


@pytest.mark.parametrize(
    "given, words",
    [
        ({"forks": "x"}, "forks='x' is not a whole number from 0 to 9"),
        ({"forsk": 5}, "forsk='forsk' is not a known name (did you mean 'forks'?)"),
        ({"plan_only": True}, "is not an object with forks"),
    ],
)
def test_a_refused_argument_is_named(given, words):
    with pytest.raises(BadInput) as refusal:
        arguments.decode(Arguments, "mxcluster_x", given)
    assert "the arguments of mxcluster_x are refused: " in str(refusal.value)
    assert words in str(refusal.value)


def test_refused_arguments_fail_the_task():
    told = ansible_modules.carry_out(
        importlib.import_module("plugins.action.mxcluster_jobs"), command="chose"
    )
    assert told["failed"] and "command='chose' is not one of status, choose" in told["msg"]
