"""What a job uses and waits for: the straggler in the report, and a busy GPU of a node."""

import json

import pytest

# Worker 1 computes, and worker 0 waits for its pushes. The meters look once a second.
STRAGGLES = """
import time
import mxnet as mx
from mxcluster import share

kv = mx.kv.create("dist_sync")
weight = mx.nd.zeros((4,))
kv.init(0, weight)
for step in range(24):
    begin = time.monotonic()
    while share.index() == 1 and time.monotonic() - begin < 0.5:
        sum(range(1000))
    kv.push(0, weight)
    kv.pull(0, out=weight)
    weight.wait_to_read()
"""
BRIEF = "import mxnet as mx\nmx.kv.create('dist_sync')\n"
# nvidia-smi of a node with two GPUs. A program uses the first one while the file `busy` exists.
SMI = """#!/bin/sh
case "$1" in
  --query-gpu=*) for n in 0 1; do echo "$n, GPU-$n, 0000:0$n:00.0, Tesla V100, 460.32"; done ;;
  --query-compute-apps=*) [ ! -e %s ] || echo "GPU-0, 4711, /usr/bin/other-training" ;;
esac
"""
HOSTS = ("node1", "node2")
HOLDER = "other-training (pid 4711)"


def test_the_report_of_a_job_names_its_straggler(pair, tmp_path):
    script = tmp_path / "straggles.py"
    script.write_text(STRAGGLES)
    result, run = pair.train(kv="dist_sync", script=str(script), job_id="straggles")
    assert result.code == 0, result.output
    sentence = json.loads((run / "verdict.json").read_text())["bottleneck"]
    assert sentence and sentence.startswith("the straggler worker-1 on node2: it computed"), (
        sentence,
        (run / "events.csv").read_text(),
    )
    assert "limit     " + sentence in result.output, result.output
    page = (run / "report.html").read_text()
    assert "The training waits for</strong> the straggler" in page
    # The inventory has the knob `env`.
    assert "1&#34;} (inventory)</dd>" in page and page.count("(inventory)") <= 2
    row = json.loads((run / "summary.json").read_text())
    assert "env" in row["of_inventory"] and "script" not in row["of_inventory"], row


@pytest.fixture
def gpus(pair, tmp_path):
    """Give the nodes two GPUs each, of which the first is busy; return the file `busy`."""
    busy, program = tmp_path / "busy", tmp_path / "bin" / "nvidia-smi"
    busy.touch()
    program.parent.mkdir()
    program.write_text(SMI % busy)
    program.chmod(0o755)
    paths = [pair.path / ".state" / "local" / "nodes" / (host + ".json") for host in HOSTS]
    before = {path: path.read_text() for path in paths}
    for path, text in before.items():
        path.write_text(json.dumps(dict(json.loads(text), gpus=2)))
    pair.environment["PATH"] = "%s:%s:/usr/local/bin:/usr/bin:/bin" % (
        program.parent,
        pair.programs,
    )
    yield busy
    del pair.environment["PATH"]
    for path, text in before.items():
        path.write_text(text)


def test_a_busy_gpu_is_left_out_or_waited_for(pair, gpus, tmp_path):
    """The plan takes the other GPU. A job that names the GPU waits until it is free."""
    script = tmp_path / "brief.py"
    script.write_text(BRIEF)
    given = {"kv": "dist_sync", "script": str(script)}
    result, run = pair.train(job_id="takes-another", **given)
    assert result.code == 0, result.output
    for host in HOSTS:
        words = "planned again: GPU 0 on %s is in use by %s" % (host, HOLDER)
        assert words in result.output, result.output
    plan = json.loads((run / "plan.json").read_text())
    assert [one["gpus"] for one in plan["processes"] if one["role"] == "worker"] == [[1], [1]]
    page = (run / "report.html").read_text()
    figures = "usage" in (run / "events.jsonl").read_text()
    assert ("No figures: " in page) != figures, page

    waits = dict(given, gpus=[0], wait_for_room="1h", job_id="waits-for-gpu")
    process = pair.start("train.yml", "-e", json.dumps(waits))
    tickets = pair.path / ".state" / "local" / "jobs" / "node1" / ".tickets"

    def reasons():
        found = [json.loads(path.read_text()) for path in tickets.glob("waits-for-gpu.json")]
        return [line for ticket in found for line in ticket["reasons"]]

    expected = ["node1: GPU 0 is in use by " + HOLDER]
    pair.until(process, lambda: reasons() == expected)
    gpus.unlink()
    output = pair.finish(process)
    assert process.returncode == 0 and "waiting for room: " + expected[0] in output, output
    pair.wait_for_nothing_left()
