"""Plans of the last version are read, and written again without a loss."""

import json
import pathlib

import pytest

from mxcluster.model.plan import NodePlan, Plan
from mxcluster.model.shapes import Wrong

SAMPLES = pathlib.Path(__file__).parent / "samples" / "plans"
# The fields that the last version did not write into each kind of plan.
ADDED = {
    "training": {"batch", "changes", "layers", "mpi"},
    "node": {"batch", "changes", "controller", "layers", "mpi", "whole"},
    "mpi": {"batch", "changes", "launcher", "layers", "subnet"},
    "submission": {"changes", "heartbeat", "layers", "mpi", "placement", "staleness", "timeouts"},
}


def sample(name):
    return json.loads((SAMPLES / (name + ".json")).read_text())


@pytest.mark.parametrize("name", sorted(ADDED))
def test_a_plan_of_the_last_version_loses_nothing(name):
    read = NodePlan.decode if name == "node" else Plan.of_run
    plan = read(sample(name))
    again, expected = plan.encode(), sample(name)
    if "meeting" in expected:
        expected["rendezvous"] = expected.pop("meeting")
    assert set(again) - set(expected) == ADDED[name]
    assert expected["options"].pop("staleness") is None and "staleness" not in again["options"]
    if name == "submission":  # the last version wrote null for an unknown address
        assert expected["nodes"]["login"].pop("address") is None
        assert expected["nodes"]["login"].pop("interface") is None
        assert again["nodes"]["login"].pop("address") == ""
        assert again["nodes"]["login"].pop("interface") == ""
    if name == "node":
        assert again["rendezvous"].pop("partners") == []
    for node in again["nodes"].values():
        assert node.pop("layer") == ""
    knobs = expected.pop("options")
    assert {key: again["options"][key] for key in knobs} == knobs, "a later version may add knobs"
    for process in expected["processes"]:
        process.setdefault("cpus", [])  # a later version may give CPUs to processes
    assert {key: again[key] for key in expected} == expected


def test_a_submission_has_no_processes_yet():
    assert Plan.of_run(sample("submission")).batch.queue == "long"
    with pytest.raises(Wrong, match="a list with the workers 0, 1 and so on"):
        Plan.checked(sample("submission"))


def test_a_damaged_plan_names_the_place():
    plan = sample("training")
    plan["processes"][2]["port"] = "x"
    with pytest.raises(Wrong, match=r"^processes\[2\]\.port='x' is not a whole number from 1 to"):
        Plan.checked(plan)
