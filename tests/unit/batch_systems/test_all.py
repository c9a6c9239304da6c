"""Every batch system of the table of launchers has all that docs/recipes-nodes.md lists."""

import inspect
import pathlib

import pytest

from mxcluster import batch_systems
from mxcluster.batch_systems import slurm
from mxcluster.launchers import LAUNCHERS

PROJECT = pathlib.Path(__file__).resolve().parents[3]
NAMES = [launcher.name for launcher in LAUNCHERS.values() if launcher.is_batch]
FUNCTIONS = [
    name
    for name, one in vars(slurm).items()
    if inspect.isfunction(one) and one.__module__ == slurm.__name__ and not name.startswith("_")
]


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_system_has_all_functions(name):
    engine = batch_systems.of(name)
    assert engine.FACTS.title == LAUNCHERS[name].title and engine.FACTS.cancel.isalpha()
    for function in FUNCTIONS:
        ours, theirs = (inspect.signature(getattr(one, function)) for one in (engine, slurm))
        assert list(ours.parameters) == list(theirs.parameters), function


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_system_has_its_other_parts(name):
    launcher = LAUNCHERS[name]
    assert launcher.tasks == "start.yml"
    assert batch_systems.refusals(name, []) == []
    assert batch_systems.refusals(name, ["script"]) != [], "no argument is refused"
    assert (PROJECT / "molecule" / name / "molecule.yml").exists(), "the scenario is missing"
    page = (PROJECT / "docs" / "batch-systems.md").read_text()
    assert "launcher=%s" % name in page, "its part of the page is missing"
