"""The knobs of sweeps: lists in all their spellings, refusals, and what is passed on."""

import pytest

from mxcluster.ansible import knobs
from mxcluster.errors import BadInput
from mxcluster.model import sweep_knobs
from mxcluster.model.knob import BENCHMARK, COMPARE


@pytest.mark.parametrize("playbook", [BENCHMARK, COMPARE])
def test_typed_values_are_accepted(playbook):
    found = sweep_knobs.cast(playbook, {})
    assert sweep_knobs.cast(playbook, found.encode()) == found


@pytest.mark.parametrize("given,wanted", [("1,2, 4", [1, 2, 4]), ("[1, 2]", [1, 2]), (4, [4])])
def test_a_list_has_many_spellings(given, wanted):
    assert sweep_knobs.cast(BENCHMARK, {"worker_counts": given}).worker_counts == wanted


@pytest.mark.parametrize(
    "playbook,name,value,words",
    [
        (BENCHMARK, "worker_counts", "1,zwei", "whole numbers from 1"),
        (BENCHMARK, "networks", [["mlp"]], "a list of networks"),
        (BENCHMARK, "batch_sizes", "", "whole numbers from 1"),
        (BENCHMARK, "kvs", "dist_sync,dist", "a list of parallel schemes"),
        (BENCHMARK, "rendezvous", "ib0:9091", "INTERFACE:ADDRESS:PORT"),
        (BENCHMARK, "sweep", "../up", "letters, digits"),
        (COMPARE, "schemes", "bsp,dist_sync", "a list of schemes out of bsp, asp"),
        (COMPARE, "lr_factors", "1/V", "1/sqrt(W)"),
        (COMPARE, "target", "97", "above 0 and below 1"),
    ],
)
def test_a_wrong_value_is_refused(playbook, name, value, words):
    with pytest.raises(BadInput, match=name) as refusal:
        sweep_knobs.cast(playbook, {name: value})
    assert words in str(refusal.value)


def test_all_wrong_values_are_named_together():
    with pytest.raises(BadInput) as refusal:
        sweep_knobs.cast(COMPARE, {"seeds": "0", "target": "2"})
    assert len(str(refusal.value).splitlines()) == 2


@pytest.mark.parametrize("text", ["10.0.0.1:9091", "ib0:10.0.0.1:29500", "eth0.5:10.0.0.1:9091"])
def test_a_rendezvous_is_accepted(text):
    assert sweep_knobs.cast(BENCHMARK, {"rendezvous": text}).rendezvous == text


def test_what_a_sweep_sets_itself_is_not_read():
    for playbook, own in ((BENCHMARK, {"network", "batch_size"}), (COMPARE, {"lr_scale"})):
        names = set(knobs.PLAYBOOKS[playbook])
        assert not names & (own | {"kv", "job_id", "detach", "num_workers", "script", "resume"})
        assert names >= {"lr", "data", "plan_only", "runs_dir", "secret_env", "sweep", "again"}
        assert len(names) == len(knobs.PLAYBOOKS[playbook])
