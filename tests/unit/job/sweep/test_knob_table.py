"""The knobs of sweeps: lists in all their spellings, refusals, and what is passed on."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job.knob_table import OPTIONS
from mxcluster.job.sweep import knob_table
from mxcluster.job.sweep.knob_table import BENCHMARK, COMPARE, KNOBS


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_an_entry_is_complete(knob):
    assert knob.type in ("str", "int", "float", "raw")
    assert knob.description.endswith(".") and "  " not in knob.description and knob.message
    assert knob.name not in {option.name for option in OPTIONS}, "-e has one meaning"


@pytest.mark.parametrize("playbook", [BENCHMARK, COMPARE])
def test_defaults_are_within_the_limits(playbook):
    found = knob_table.cast(playbook, {})
    assert found == {knob.name: knob.default for knob in knob_table.knobs_of(playbook)}
    again = knob_table.cast(playbook, found)
    assert again == found


@pytest.mark.parametrize(
    "given,wanted",
    [
        ("1,2, 4", [1, 2, 4]),
        ("[1, 2]", [1, 2]),
        (4, [4]),
        ("4", [4]),
    ],
)
def test_a_list_has_many_spellings(given, wanted):
    assert knob_table.cast(BENCHMARK, {"worker_counts": given})["worker_counts"] == wanted


@pytest.mark.parametrize(
    "playbook,name,value,words",
    [
        (BENCHMARK, "worker_counts", "1,zwei", "whole numbers from 1"),
        (BENCHMARK, "worker_counts", "0", "whole numbers from 1"),
        (BENCHMARK, "networks", [["mlp"]], "a list of networks"),
        (BENCHMARK, "batch_sizes", "", "whole numbers from 1"),
        (BENCHMARK, "kvs", "dist_sync,dist", "a list of parallel schemes"),
        (BENCHMARK, "rendezvous", "ib0:9091", "INTERFACE:ADDRESS:PORT"),
        (BENCHMARK, "max_jobs", "0", "from 1"),
        (BENCHMARK, "sweep", "../up", "letters, digits"),
        (BENCHMARK, "again", "all", "empty, failed or late"),
        (COMPARE, "schemes", "bsp,dist_sync", "a list of schemes out of bsp, asp"),
        (COMPARE, "lr_factors", "1/V", "1/sqrt(W)"),
        (COMPARE, "target", "97", "above 0 and below 1"),
    ],
)
def test_a_wrong_value_is_refused(playbook, name, value, words):
    with pytest.raises(BadInput, match=name) as refusal:
        knob_table.cast(playbook, {name: value})
    assert words in str(refusal.value)


def test_all_wrong_values_are_named_together():
    with pytest.raises(BadInput) as refusal:
        knob_table.cast(COMPARE, {"seeds": "0", "target": "2"})
    assert len(str(refusal.value).splitlines()) == 2


@pytest.mark.parametrize("text", ["10.0.0.1:9091", "ib0:10.0.0.1:29500", "eth0.5:10.0.0.1:9091"])
def test_a_rendezvous_is_accepted(text):
    assert knob_table.cast(BENCHMARK, {"rendezvous": text})["rendezvous"] == text


def test_what_a_sweep_sets_itself_is_not_read():
    for playbook, own in ((BENCHMARK, {"network", "batch_size"}), (COMPARE, {"lr_scale"})):
        names = set(knob_table.names_of(playbook))
        assert not names & (own | {"kv", "job_id", "detach", "num_workers", "script", "resume"})
        assert names >= {"lr", "data", "plan_only", "runs_dir", "secret_env", "sweep", "again"}
        assert len(names) == len(knob_table.names_of(playbook))
