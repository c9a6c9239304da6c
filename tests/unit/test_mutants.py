"""The list of deliberate faults fits the source."""

import pathlib

import pytest
import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[2]
FAULTS = yaml.safe_load((PROJECT / "tests" / "mutants" / "mutants.yml").read_text())


@pytest.mark.parametrize("fault", FAULTS, ids=range(len(FAULTS)))
def test_a_fault_replaces_one_place_of_its_file(fault):
    assert (PROJECT / fault["file"]).read_text().count(fault["old"]) == 1, fault["name"]
