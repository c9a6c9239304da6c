"""The action plugin mxcluster_jobs, which reads the nodes' answers about jobs."""

import json
import pathlib
import time

import pytest
import yaml
from ansible.plugins.loader import filter_loader, init_plugin_loader

from mxcluster.job.plan import packed
from mxcluster.model.node_record import SCHEMA
from mxcluster.model.plan import Node
from plugins.action import mxcluster_jobs
from tests import ansible_modules
from tests.templates import templated
from tests.unit.job.test_kept_runs import make as kept_run

init_plugin_loader()  # filters of ansible.builtin
PROJECT = pathlib.Path(__file__).resolve().parents[3]

PROCESS = {
    "name": "worker-0",
    "role": "worker",
    "index": 0,
    "host": "a",
    "address": "10.0.0.1",
    "port": 9091,
    "gpus": [],
    "group": 0,
    "share": [0, 1],
}
PLAN = {
    "schema": 1,
    "job": "one",
    "kv": "dist_sync",
    "nodes": {"a": {}, "b": {}},
    "processes": [PROCESS],
    "options": {"lease": 60},
}
ANSWER = {"jobs": [], "paths": {"python": "/env/python", "jobs_dir": "/jobs"}}


def carry_out(**given):
    return ansible_modules.carry_out(mxcluster_jobs, **given)


def adopt(runs_dir="/tmp/runs", **given):
    folders = {"records_dir": "/tmp/state/nodes", "runs_dir": runs_dir}
    return carry_out(command="adopt", job="one", **folders, **given)


@pytest.mark.parametrize("lost", [{}, {"failed": True, "msg": "no such python"}, {"jobs": "none"}])
def test_a_job_is_adopted_without_a_dead_node(lost):
    """The controller collects the other nodes' results and skips the dead node."""
    for plan in (
        {},
        {"unreachable": True, "msg": "timed out"},
    ):  # lost before or after its list of jobs
        adopted = adopt(
            answers={"a": ANSWER, "b": lost},
            results={"a": {"plan": PLAN}, "b": plan},
        )
    assert adopted["answering"] == ["a"]
    assert packed.unpack(adopted["packed_plan"]).plan.nodes == {
        "a": Node(python="/env/python", job_dir="/jobs/one"),
        "b": Node(),
    }


def test_the_plan_of_a_node_in_without_does_not_count():
    results = {"a": {"plan": PLAN}, "b": {"plan": dict(PLAN, kv="dist_async")}}
    given = dict(answers={"a": ANSWER, "b": ANSWER}, results=results)
    assert packed.unpack(adopt(without="b", **given)["packed_plan"]).plan.kv == "dist_sync"
    assert "different plans of the job one" in adopt(**given)["msg"]


def test_a_job_is_not_adopted_without_a_folder_for_its_results():
    """A job would run to its end, and its report would have no place."""
    result = adopt("/proc/runs", answers={"a": ANSWER}, results={"a": {"plan": PLAN}})
    assert result["failed"]
    assert "runs_dir=/proc/runs/one: the controller cannot write to" in result["msg"]


def test_a_complete_job_is_not_collected_again_after_a_node_has_removed_it(tmp_path):
    """The new report would replace the files of this node by nothing, and fail the job."""
    run = kept_run(tmp_path, "one")
    here = dict(ANSWER, jobs=[{"job": "one", "state": "ended"}])
    given = {"answers": {"a": here, "b": ANSWER}, "results": {"a": {"plan": PLAN}, "b": {}}}
    result = adopt(str(tmp_path), **given)
    assert result["failed"] and "attach=one: b has removed the folder" in result["msg"], result
    silent = dict(given, answers={"a": here, "b": {}})
    both = dict(given, answers={"a": here, "b": here})
    assert not any(adopt(str(tmp_path), **one).get("failed") for one in (silent, both))
    (run / "verdict.json").unlink()
    assert not adopt(str(tmp_path), **given).get("failed")


def test_status_names_the_nodes_that_need_a_restart(tmp_path):
    driver = {"installed": "470.82.01", "loaded": None, "nouveau": True}
    for host, state in (("a", driver), ("b", dict(driver, loaded="470.82.01", nouveau=False))):
        record = {"host": host, "schema": SCHEMA, "bus": 1, "driver": state}
        record.update(job_dir="/jobs", data_dir="/data")
        (tmp_path / (host + ".json")).write_text(json.dumps(record))
    answers = {"a": {"jobs": []}, "b": {"jobs": []}, "c": {"jobs": []}}  # c has no record
    given = dict(records_dir=str(tmp_path), path=str(tmp_path / "status"), answers=answers)
    lines = carry_out(command="status", **given)["mxcluster_verdict_text"]
    why = "driver 470.82.01 is installed, but nouveau is loaded"
    assert lines[-1] == "restart needed a: " + why
    assert json.loads((tmp_path / "status").read_text())["restart_needed"] == {"a": why}


def test_a_save_is_known_by_two_looks_at_the_checkpoints():
    status = {"job": "one", "agent": {"pid": 1, "start_time": 1}, "started": 1.0, "processes": []}
    parts = {"mlp-0003.json": "{}", "mlp-0004.server-0.json": "{}", "../mlp-0009.json": "{}"}
    before = {"item": "one", "status": status, "checkpoints": {"parts": parts}}
    after = {
        "item": before,
        "status": dict(status, state="ended", reason="stopped"),
        "checkpoints": {"parts": dict(parts, **{"mlp-0004.json": "{}"})},
    }
    lost = {"item": {"item": "two", "failed": True, "msg": "no status"}, "msg": "no status"}
    found = mxcluster_jobs.saves({"a": {"results": [after, lost]}, "b": {}, "c": None})
    assert found == {"one": ("mlp-0003", "mlp-0004", True, True), "two": ("", "", False, False)}
    for order in ([after, dict(lost, item=before)], [dict(lost, item=before), after]):
        waits = {host: {"results": [part]} for host, part in zip("ab", order)}
        assert not mxcluster_jobs.saves(waits)["one"].is_known, "one node did not answer"


def test_a_node_that_falls_silent_has_no_new_checkpoint():
    status = {"job": "one", "agent": {"pid": 1, "start_time": 1}, "started": 1.0, "processes": []}
    before = {"item": "one", "status": status, "checkpoints": {"parts": {"mlp-0003.json": "{}"}}}
    silent = {"item": before, "failed": True, "msg": "no answer"}
    found = mxcluster_jobs.saves({"a": {"results": [silent]}})
    assert found == {"one": ("", "", False, False)}, "stop.yml says that nobody knows what is lost"


def until_of(name):
    """Return the condition that ends a wait in save.yml. Args: `name` of the registered result."""
    tasks = yaml.safe_load((PROJECT / "roles" / "jobs" / "tasks" / "save.yml").read_text())
    return next(task["until"] for task in tasks if task["register"] == name)


@pytest.mark.parametrize("seconds, ends", [(60, False), (-1, True)])
def test_a_failed_poll_does_not_end_the_wait_for_a_checkpoint(seconds, ends):
    filter_loader.add_directory(str(PROJECT / "plugins" / "filter"))
    failed = {"failed": True, "msg": "no answer"}
    known = {"__jobs_chosen": {"save_until": time.time() + seconds}, "item": {"status": {}}}
    for name in ("__jobs_unsaved", "__jobs_saved"):
        condition = "{{ %s }}" % until_of(name)
        assert templated(condition, dict(known, **{name: failed})) is ends, name


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_node_without_a_new_checkpoint_counts(order):
    """Workers of a script that save on several nodes: the controller fetches those of one."""
    status = {"job": "one", "agent": {"pid": 1, "start_time": 1}, "started": 1.0, "processes": []}

    def wait(worker, before, after):
        offers = [
            {"parts": {"worker-%d-%04d.json" % (worker, number): "{}"}}
            for number in (before, after)
        ]
        first = {"item": "one", "status": status, "checkpoints": offers[0]}
        return {"results": [{"item": first, "status": status, "checkpoints": offers[1]}]}

    waits = {"a": wait(0, 3, 4), "b": wait(1, 2, 2)}
    found = mxcluster_jobs.saves({host: waits[host] for host in order})
    assert found == {"one": ("worker-1-0002", "worker-1-0002", False, True)}


@pytest.mark.parametrize("wrong", ["0", "soon", "-1m", "400d", True])
def test_a_wrong_save_timeout_is_refused(wrong):
    answer = carry_out(command="choose_to_stop", all=True, save=True, save_timeout=wrong)
    assert answer["failed"] and "save_timeout" in answer["msg"] and "30m" in answer["msg"], answer


def clean(older_than, tmp_path):
    paths = {"records_dir": str(tmp_path / "nodes"), "runs_dir": str(tmp_path / "runs")}
    return carry_out(command="choose_to_clean", older_than=older_than, **paths)


@pytest.mark.parametrize("good", ["30d", "12h", "2w", " 1w2d ", "1s", "520w"])
def test_an_age_has_a_unit(good, tmp_path):
    assert not clean(good, tmp_path).get("failed"), clean(good, tmp_path)


@pytest.mark.parametrize("wrong", ["", "30", 30, "0d", "-1d", "1.5d", "30 d", "30D", "521w", "d"])
def test_a_wrong_age_is_refused(wrong, tmp_path):
    """A number alone could mean seconds or days."""
    answer = clean(wrong, tmp_path)
    assert answer["failed"], answer
    words = "older_than=%r is not a time with a unit, of at most 520 weeks, such as 30d" % wrong
    assert words in answer["msg"], answer
