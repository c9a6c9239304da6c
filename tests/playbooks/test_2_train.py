"""train.yml trains on the local inventory with real MXNet."""

import json
import os
import re
import signal
import time

import pytest

from tests import json_lines
from tests.often import seldom
from tests.playbooks.conftest import NET, end


def verdict_of(result, run):
    assert (run / "verdict.json").exists(), result.output
    return json.loads((run / "verdict.json").read_text())


@pytest.mark.parametrize(
    "kv",
    [
        "local",
        "dist_gsync",
        # Molecule trains with the other schemes, and the "device" ones need a GPU to differ.
        *map(seldom, ("dist_ssync", "dist_sync", "dist_async", "device", "dist_device_sync")),
    ],
)
def test_every_scheme_learns_the_digits(project, pair, kv):
    """With defaults, the accuracy is at least 0.95; run folder and last lines are complete."""
    before = project.elsewhere()
    cluster, workers = (project, 4) if kv == "dist_gsync" else (pair, 2)
    result, run = cluster.train(kv=kv, num_epochs=20)
    verdict = verdict_of(result, run)
    assert result.code == 0 and verdict["ok"] and verdict["accuracy"] >= 0.95, result.output
    assert set(verdict["exit_codes"].values()) == {0} and verdict["first_failure"] is None
    names = {path.name for path in run.iterdir()}
    assert names >= {
        "plan.json",
        "verdict.json",
        "report.html",
        "curves.png",
        "events.jsonl",
        "nodes",
    }, names
    last = result.output.rstrip().splitlines()[-5:]
    for word in ("accuracy", "time", "samples/s", "report.html"):
        assert any(word in line for line in last), last
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    workers = workers if kv.startswith("dist") else 1
    epochs = [event for event in events if event["event"] == "epoch"]
    assert len(epochs) == 20 * workers and all(0 <= event["accuracy"] <= 1 for event in epochs)
    if kv == "dist_gsync":
        assert {event["group"] for event in events if event["event"] == "gsync"} == {0, 1}
    assert project.elsewhere() == before, "the job has written files outside the project"
    project.wait_for_nothing_left()


def test_progress_is_told_while_it_runs_without_a_terminal(pair):
    # With -v a line comes every 5 s, otherwise every 30 s. The line of a busy machine's last polls
    # may name one worker only.
    result, _ = pair.train("-v", kv="dist_sync", num_epochs=15, step_ms=60)
    lines = [line for line in result.output.splitlines() if "samples/s" in line and "epoch" in line]
    assert result.code == 0 and lines, result.output
    assert any("ETA" in line and "slowest" in line and "accuracy" in line for line in lines), lines


@pytest.mark.alone
def test_batch_sizes_follow_a_slow_host_and_a_resumed_job_keeps_them(project):
    """The host variable slowdown reaches the worker; line, report and checkpoint have the sizes."""
    address = "node2:\n          node_address"
    slower = address.replace("node_address", "slowdown: 3\n          node_address")
    slow = project.inventory("slow", **{address: slower})
    given = {"num_epochs": 6, "num_examples": 320, "num_workers": 2, "num_servers": 1}
    given.update(kv="dist_sync", balance="batch", step_ms=150, savemodel=True, lr=0.1)
    result, run = project.train("-i", slow, **given)
    assert result.code == 0, result.output
    sizes = [
        event["sizes"]
        for event in map(json.loads, (run / "events.jsonl").read_text().splitlines())
        if event["event"] == "balance"
    ]
    assert sizes and sum(sizes[-1]) == 64 and 44 <= sizes[-1][0] <= 52, sizes
    assert any("b %d/%d" % tuple(each) in result.output for each in sizes), result.output
    words = "emulated slowness: the program slows down worker 1 by the factor 3 and 32 samples take"
    assert result.output.count(words) >= 2, "neither the plan nor the verdict may hide it"
    assert "Batch sizes" in (run / "report.html").read_text()
    result, again = project.train(
        "-i",
        slow,
        resume=run.name,
        num_epochs=7,
        **{name: given[name] for name in ("num_workers", "num_servers")},
    )
    assert result.code == 0, result.output
    plan = json.loads((again / "plan.json").read_text())
    assert plan["balance"]["sizes"] == sizes[-1] and plan["options"]["balance"] == "batch"


def test_steps_end_at_a_deadline_and_a_resumed_job_goes_on_with_it(pair):
    """Plan, line, report and checkpoint have the deadline; the workers tell the parts of a step."""
    given = {"kv": "dist_sync", "balance": "deadline", "batch_size": 64, "step_ms": 100}
    result, run = pair.train(num_epochs=2, savemodel=True, **given)
    assert result.code == 0, result.output
    assert (
        "workers step by a common deadline (balance=deadline), about 128 samples" in result.output
    )
    assert re.search(r"  T [0-9.e-]+ s  ", result.output), result.output
    assert "Parts of a step" in (run / "report.html").read_text()
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    parts = {event["index"]: event for event in events if event["event"] == "step_times"}
    assert sorted(parts) == [0, 1]
    assert all(event["compute"] > 0 and event["steps"] > 2 for event in parts.values()), parts
    manifest = json.loads((run / "checkpoints" / "mlp-0002.json").read_text())
    assert manifest["progress"]["seconds"] > 0 and min(manifest["progress"]["speeds"]) > 0
    result, again = pair.train(resume=run.name, num_epochs=3)
    assert result.code == 0, result.output
    plan = json.loads((again / "plan.json").read_text())
    assert plan["balance"]["progress"] == manifest["progress"]
    assert "(balance=deadline, %.3g s at first)" % manifest["progress"]["seconds"] in result.output


def test_every_worker_trains_its_share(project, tmp_path):
    (tmp_path / "data_sharding").write_text("0 0.1\n0.1 0.2\n0.2 0.6\n0.6 1\n")
    result, run = project.train(
        kv="dist_gsync",
        data_allocator="1",
        num_epochs="2",
        data_sharding_file=str(tmp_path / "data_sharding"),
    )
    assert result.code == 0, result.output
    starts = {
        event["index"]: event
        for event in map(json.loads, (run / "events.jsonl").read_text().splitlines())
        if event["event"] == "start"
    }
    # 1437 samples by largest remainder (143.7, 143.7, 574.8, 574.8); batches of 32 are equal within
    # each group of two.
    assert [starts[index]["samples_in_share"] for index in range(4)] == [144, 143, 575, 575]
    assert [starts[index]["batches"] for index in range(4)] == [5, 5, 18, 18]


@pytest.mark.soak  # test_live_line.py composes the line
def test_the_epoch_of_the_live_line_is_the_slowest_workers(project):
    """Under dist_async worker 0 gets ahead of worker 1. The log has the time of each live line."""
    slow = project.inventory(
        "one_slow", nodes=2, **{NET + ".12": NET + ".12\n          slowdown: 8"}
    )
    options = {"kv": "dist_async", "num_epochs": 2000, "step_ms": 20, "job_id": "uneven"}
    command = ("train.yml", "-v", "-i", slow, "-e", json.dumps(dict(options, lease=2)))
    log = project.path / "runs" / "uneven" / "ansible.log"
    jobs = project.path / ".state" / "local" / "jobs"
    form = re.compile(r"^([-0-9]+ [:0-9]+),\d+ async  epoch (\d+)/", re.MULTILINE)

    def epoch_of(worker, moment):
        """Return the number of the epoch that a worker was in, 1 for the first."""
        path = jobs / ("node%d" % (worker + 1)) / "uneven" / "events.jsonl"
        events = json_lines.complete(path)
        own = ("worker", worker)
        of_worker = [one for one in events if (one.get("role"), one.get("index")) == own]
        seen = [one["epoch"] for one in of_worker if "epoch" in one and one["time"] < moment]
        return max(seen, default=0) + 1

    def compared():
        """Return [(epoch of a line, epochs of both workers then)] once worker 0 is far ahead.

        A line may be some seconds old, in which worker 0 trains up to ten epochs.
        """
        text = log.read_text() if log.exists() else ""
        found = []
        for when, epoch in form.findall(text):
            moment = time.mktime(time.strptime(when, "%Y-%m-%d %H:%M:%S")) + 1
            found.append((int(epoch), epoch_of(0, moment), epoch_of(1, moment)))
        return found if found and found[-1][1] > found[-1][2] + 30 else None

    process = project.start(*command)
    found = project.until(process, compared)
    os.killpg(process.pid, signal.SIGINT)
    project.finish(process)
    assert all(line <= of_slow for line, _, of_slow in found), found
    project.wait_for_nothing_left(leased=True)


def start_a_long_job(project, kv, job, **options):
    """Start train.yml in the background and wait until every worker has trained some batches.

    The workers mostly sleep, so that the job slows no other test. Returns the process.
    """
    options = dict(
        {"num_workers": 3, "num_servers": 1, "step_ms": 20},
        kv=kv,
        num_epochs=2000,
        job_id=job,
        **options,
    )
    process = project.start("train.yml", "-e", json.dumps(options))
    jobs = project.path / ".state" / "local" / "jobs"

    def all_train():
        logs = [path.read_text(errors="replace") for path in jobs.glob("*/%s/worker-*.log" % job)]
        return len(logs) == 3 and all("epoch 1:" in log for log in logs)

    project.until(process, all_train)
    return process


def test_a_script_that_fails_is_named_with_its_last_words(pair, tmp_path):
    """The last lines of the log are shown, without control sequences from the log or an event."""
    (tmp_path / "broken.py").write_text(
        "import mxnet as mx\nfrom mxcluster import events\nkv = mx.kv.create('dist_sync')\n"
        "evil = 'gone\\r\\x1b]0;owned\\x07\\x1b[2J\\x9b3A\\u202eout of luck'\n"
        "events.from_env().write('batch', epoch=evil, step=1, samples=evil, loss=evil, text=evil)\n"
        "raise SystemExit(evil)\n"
    )
    result, run = pair.train(kv="dist_sync", script=str(tmp_path / "broken.py"))
    failure = verdict_of(result, run)["first_failure"]
    assert result.code != 0 and failure["role"] == "worker" and failure["exit_code"] == 1, (
        result.output
    )
    assert "out of luck" in result.output and "exited with status 1" in result.output
    assert result.output.replace("\n", "").isprintable() and "[WARNING]" not in result.output, (
        result.output
    )
    pair.wait_for_nothing_left()


def test_a_script_that_fails_on_one_node_before_it_makes_its_store(pair, tmp_path):
    """The other worker waits inside MXNet, before any heartbeats.

    Nothing but start_timeout would end it, after this playbook is killed.
    """
    (tmp_path / "early.py").write_text(
        "import os, sys\nif os.environ['MXCLUSTER_INDEX'] == '1': sys.exit('not here')\n"
        "import mxnet as mx\nkv = mx.kv.create('dist_sync')\n"
    )
    result, run = pair.train(kv="dist_sync", script=str(tmp_path / "early.py"), start_timeout=600)
    failure = verdict_of(result, run)["first_failure"]
    assert result.code != 0 and (failure["host"], failure["role"], failure["index"]) == (
        "node2",
        "worker",
        1,
    ), failure
    assert "not here" in result.output, result.output
    pair.wait_for_nothing_left()


def test_a_controller_that_does_not_poll_for_a_while_loses_no_job(project):
    """A controller that pauses keeps the job; a killed one loses it when the lease runs out."""
    process = start_a_long_job(project, "dist_gsync", "held-up", lease=2)
    os.killpg(process.pid, signal.SIGSTOP)  # a compilation can block a machine in the same way
    # Of a controller that is not on this machine, the limit would be at most twice the lease.
    project.outlast("held-up", 2 * 2)
    assert process.poll() is None and project.processes(), (
        "the job ended although its controller is alive"
    )
    log = (project.path / ".state/local/jobs/node2/held-up/agent.log").read_text()
    status = project.status("held-up", "node2")
    assert status["state"] == "running" and "ending:" not in log, (status, log)
    end(process)
    ended_by_lease(project, "held-up")
    assert project.status("held-up", "node2")["lease"]["age"] > 2 * 2


def ended_by_lease(project, job):
    """Wait for the end of a job without a controller, and check that its own lease has ended it.

    An agent that takes the controller for alive waits 180 s, and for a distant one up to twice the
    lease.
    """
    project.wait_for_nothing_left(leased=True)
    status = project.status(job, "node2")
    assert status["reason"] == "lease" and status["lease"]["limit"] == 2, status


def test_after_control_c_the_lease_ends_everything(project):
    process = start_a_long_job(project, "dist_gsync", "interrupted", lease=2)
    os.killpg(process.pid, signal.SIGINT)
    output = project.finish(process)
    assert process.returncode != 0
    assert "LEFT      job interrupted, which still runs on its nodes" in output, output
    assert "attach    ansible-playbook train.yml -e attach=interrupted" in output, output
    log = project.ansible_log()
    assert "TASK [train_job : Wait for the results of the job's processes" in log, log
    assert "User interrupted execution" in log and log.rstrip().endswith(output.splitlines()[-1])
    ended_by_lease(project, "interrupted")
