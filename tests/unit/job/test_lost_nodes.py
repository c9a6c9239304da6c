"""Nodes that several of the last jobs have lost."""

import json
import os

from mxcluster.job import lost_nodes
from mxcluster.model import failures

VERDICT = {
    "ok": False,
    "kv": "dist_sync",
    "accuracy": None,
    "samples_per_s": None,
    "seconds": 1.0,
    "exit_codes": {},
    "nodes": {"a": "done", "b": "done"},
}


def add(runs, job, when, kind=failures.LOST, host="b"):
    failure = failures.of_agent(host, kind, "gone", 1.0).encode()
    (runs / job).mkdir()
    path = runs / job / "verdict.json"
    path.write_text(json.dumps(dict(VERDICT, job=job, first_failure=failure)))
    os.utime(str(path), (when, when))


def test_a_node_that_was_lost_twice_in_the_last_jobs_is_named(tmp_path):
    assert lost_nodes.of_runs(str(tmp_path / "absent")) == {}
    add(tmp_path, "old", 1)
    for number in range(lost_nodes.RUNS - 2):
        add(tmp_path, "other-%d" % number, 10 + number, failures.PROGRAM)
    add(tmp_path, "one", 50)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "verdict.json").write_text("{")
    os.utime(str(tmp_path / "broken" / "verdict.json"), (51, 51))
    (tmp_path / "index.html").write_text("a page")
    assert lost_nodes.line(str(tmp_path), ["a", "b"]).result == "ok", "one is older than the last"
    add(tmp_path, "two", 60)
    add(tmp_path, "of-a", 61, host="a")
    line = lost_nodes.line(str(tmp_path), ["a", "b"])
    assert line.result == "warning" and len(line.why) == 1, line
    assert line.why[0].startswith("b: 2 of the last jobs have lost this node (one and two): look")
    assert lost_nodes.line(str(tmp_path), ["a"]).result == "ok"
