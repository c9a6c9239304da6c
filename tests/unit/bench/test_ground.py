"""The jobs of a ground: its schemes, its inventories and its tables."""

import json

import pytest

from bench import _figures, _ground
from mxcluster.job.options import cast
from mxcluster.job.sweep import comparison
from mxcluster.model.host_variables import HostVariables


@pytest.mark.parametrize("name", _ground.SCHEMES)
def test_each_scheme_is_accepted_by_the_options_of_a_job(name):
    knobs = dict(_ground.SCHEMES[name], measured=100, max_time="60s", data="synthetic")
    cast(knobs)


@pytest.fixture
def where(tmp_path):
    folder = tmp_path / "inventory"
    folder.mkdir()
    groups = {
        "scheduler": {"hosts": {"a": {}}},
        "servers": {"hosts": {"a": {}}},
        "workers": {"hosts": {"a": {"slowdown": 2}, "b": {}, "c": {"slowdown": 4}}},
    }
    hosts = {"a": {"node_address": "127.0.0.2"}}
    (folder / "hosts.yml").write_text(
        json.dumps({"all": {"vars": {"x": 1}, "children": groups, "hosts": hosts}})
    )
    return folder


def test_an_inventory_with_some_workers_keeps_servers_and_host_variables(where):
    folder = _ground.variant(where, "solo-c", ["c"])
    everything = json.loads((folder / "hosts.yml").read_text())["all"]
    assert list(everything["children"]["workers"]["hosts"]) == ["c"]
    assert list(everything["children"]["servers"]["hosts"]) == ["a"]
    assert everything["hosts"]["a"] == {"slowdown": 2, "node_address": "127.0.0.2"}
    assert everything["vars"] == {"x": 1} and everything["hosts"]["c"] == {"slowdown": 4}
    inside = _ground.variant(where, "inside-c", ["c"], ["c"])
    everything = json.loads((inside / "hosts.yml").read_text())["all"]
    assert list(everything["children"]["servers"]["hosts"]) == ["c"]
    assert list(everything["children"]["scheduler"]["hosts"]) == ["a"]


def test_the_table_ends_with_the_fastest_group_against_the_best_scheme():
    step = _figures.Step(0, 0.5, 32.0, dict.fromkeys(_figures.PARTS, 0.0))
    schemes = {"dist_sync": [40.0, 44.0], "dist_gsync, groups": [80.0, 80.0]}
    schemes[_ground.FASTEST] = [60.0, 62.0]
    solo = [{"a": 50.0, "b": 50.0}, {"a": 52.0, "b": 48.0}]
    found = _ground.lines(_ground.Result(solo, {"a": 45.0}, schemes, {"dist_sync": [step]}))
    text = "\n".join(found)
    assert "a alone: 51.0 samples/s, 45.0 with the server under its quota" in text
    assert "the fastest group alone / best scheme (dist_gsync, groups): 0.762" in text
    assert "0.420 (0.410 to 0.430)" in text


def test_the_machines_of_the_changing_ground_have_valid_host_variables():
    from bench.changing import WORKERS

    for own in WORKERS:
        assert HostVariables.decode(own).slowdown_changes == [1.0, 2.0]


def test_a_worker_alone_has_no_servers_as_in_a_comparison(where, monkeypatch):
    """With a server beside it, a worker pushes and pulls."""
    asked = []
    monkeypatch.setattr(_ground.Jobs, "speed", lambda *given: asked.append(given[2:]) or 10.0)
    jobs = _ground.Jobs(_ground.Ground("x", where.parent, where, {}, 8, _ground.Length(1, 1, 1)))
    assert jobs.solo() == dict.fromkeys("abc", 10.0)
    assert asked == [(1, {"kv": comparison.SOLO_KV})] * 3
    jobs.solo(inside=True)
    assert asked[3:] == [(1, {"kv": "dist_sync"})] * 3
