"""Detached and concurrent jobs: detach, status, attach, logs and stop on the local inventory."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import threading
import zlib

import pytest

from mxcluster import checkpoints, phases
from mxcluster.training import pulse_file
from tests.playbooks.conftest import NET, PATIENCE, On
from tests.waiting import until

# The script does not train and does not import MXNet, unlike servers and scheduler: several jobs
# run on few cores.
LONG = "import time\nprint('here', flush=True)\ntime.sleep(3600)\n"
FAILS = (
    "import os, sys, time\nimport mxnet as mx\nkv = mx.kv.create('dist_sync')\n"
    "print('index', os.environ['MXCLUSTER_INDEX'], flush=True)\n"
    "if os.environ['MXCLUSTER_INDEX'] == '2': sys.exit('out of luck')\ntime.sleep(600)\n"
)


def detach(project, job, *arguments, **options):
    """Start a detached job."""
    result, run = project.train(*arguments, job_id=job, detach=True, **options)
    assert result.code == 0, result.output
    assert (
        "STARTED   job %s" % job in result.output
        and "train.yml -e attach=%s" % job in result.output
    ), result.output
    assert not (run / "verdict.json").exists(), "it has only what ran"
    return result


def status(project):
    """Return {job: answer of status.yml}, equal on the last line and in the file."""
    result = project.run("status.yml", "-e", "json=true")
    assert result.code == 0, result.output
    listing = json.loads(result.output.rstrip().splitlines()[-1])
    assert (
        listing == json.loads((project.path / ".state" / "local" / "status.json").read_text())
        and listing["not_asked"] == []
    )
    return {job["job"]: job for job in listing["jobs"]}


def folders(project, job):
    """Return the folders of a job on its nodes."""
    return sorted(
        str(path) for path in (project.path / ".state" / "local" / "jobs").glob("*/%s" % job)
    )


def ports_of(listing):
    return {(host, port) for host, held in listing["holds"].items() for port in held["ports"]}


@contextlib.contextmanager
def another_controller(project):
    """Hide the controller's records of jobs and nodes, so that only the nodes can answer."""
    there = [
        path
        for path in (project.path / "runs", project.path / ".state" / "local" / "nodes")
        if path.exists()
    ]
    for path in there:
        path.rename(path.with_name(path.name + ".away"))
    try:
        yield
    finally:
        for path in there:
            if path.exists():
                for name in path.iterdir():
                    hidden = path.with_name(path.name + ".away") / name.name
                    if hidden.is_dir():  # both controllers know this job
                        shutil.rmtree(str(hidden))
                    name.rename(hidden)
                path.rmdir()
            path.with_name(path.name + ".away").rename(path)


class Elsewhere(On):
    """Three of the project's nodes on other addresses, whose ports no other test occupies."""

    def __init__(self, project):
        addresses = {"%s.1%d" % (NET, number): "%s.6%d" % (NET, number) for number in range(1, 4)}
        super().__init__(project, project.inventory("elsewhere", nodes=3, **addresses))

    def script(self, text):
        """Return the path of a script with this text in its own folder."""
        folder = self.project.tmp.parent / ("script-%x" % zlib.crc32(text.encode()))
        folder.mkdir(exist_ok=True)
        (folder / "it.py").write_text(text)
        return str(folder / "it.py")


# A process may come back to this file after tests of others, so what is made once is the session's.
@pytest.fixture(scope="session")
def elsewhere(project):
    return Elsewhere(project)


@pytest.fixture(scope="module")
def nodes(project, elsewhere):
    """Return the project; kill the remaining processes of its jobs at the end."""
    yield elsewhere
    for pid in project.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_jobs_beside_each_other(nodes):
    """Concurrent jobs get separate ports; a used port is refused; stop.yml ends the named job."""
    detach(nodes, "long", kv="dist_sync", script=nodes.script(LONG), start_timeout=0)
    for module in ("mxcluster.agent", "mxcluster.training"):  # else no test would see it left
        until(lambda module=module: module in " ".join(nodes.processes().values()))
    result, run = nodes.train(kv="dist_gsync", num_epochs=3, job_id="beside")
    assert result.code == 0 and json.loads((run / "verdict.json").read_text())["ok"], result.output
    again = r"^planned again: port \d+ on node\d is in use by the job long$"
    assert re.findall(again, result.output, re.MULTILINE), result.output
    listing = status(nodes)
    assert (
        listing["long"]["state"] == "running"
        and listing["long"]["detached"]
        and listing["beside"]["state"] == "done"
    ), listing
    assert "3 of 3 workers" in listing["long"]["progress"] and set(
        listing["long"]["nodes"].values()
    ) == {"running"}
    beside = {
        (process["host"], str(process["port"]))
        for process in json.loads((run / "plan.json").read_text())["processes"]
    }
    # The server is a process for each of the two groups.
    assert len(beside) == 1 + 2 + 3 and not beside & ports_of(listing["long"])

    port = min(int(port) for _, port in ports_of(listing["long"]))
    result, run = nodes.train(kv="dist_sync", root_port=port, job_id="refused")
    assert result.code != 0 and "in use by the job long" in result.output and not run.exists(), (
        result.output
    )
    assert folders(nodes, "refused") == []

    detach(nodes, "second", kv="dist_sync", script=nodes.script(LONG), start_timeout=0)
    both = status(nodes)
    assert (
        not ports_of(both["long"]) & ports_of(both["second"])
        and len(ports_of(both["second"])) == 1 + 1 + 3
    )
    result = nodes.run("logs.yml")
    assert result.code != 0 and "2 jobs are running or prepared: name a job" in result.output, (
        result.output
    )
    stop_one_of_two(nodes)
    result = nodes.run("stop.yml", "-e", "all=true")
    assert result.code == 0 and "the job second has been ended" in result.output, result.output
    nodes.wait_for_nothing_left()


def stop_one_of_two(nodes):
    """Check that stop.yml ends the job long, and leaves the job second alone."""
    result = nodes.run("stop.yml", "--check", "-e", "job=long")
    assert result.code == 0 and "would be ended on node1 node2 node3" in result.output, (
        result.output
    )
    for words in ("has been ended on node1 node2 node3", "had ended already"):
        result = nodes.run("stop.yml", "-e", "job=long")
        assert result.code == 0 and words in result.output, result.output
    listing = status(nodes)
    assert (listing["long"]["state"], listing["second"]["state"]) == ("stopped", "running")
    result = nodes.run("train.yml", "-e", "attach=long")
    assert result.code == 2, result.output
    stopped = r"^STOPPED   job long \(dist_sync\) after [:\d]+: the job was stopped on request$"
    assert re.findall(stopped, result.output, re.MULTILINE), result.output
    assert "FAILED" not in result.output and "first  " not in result.output, result.output
    result = nodes.run("stop.yml")  # another job runs as well, perhaps of another user
    assert (
        result.code != 0
        and "give -e job=<id>, or -e all=true" in result.output
        and "second" in result.output
    ), result.output
    assert not [
        line
        for line in nodes.processes().values()
        if "/jobs/" in line and line.rstrip().endswith("/long")
    ]


def test_another_controller_waits_for_a_job_and_writes_its_report(nodes):
    detach(nodes, "goes-on", kv="dist_gsync", step_ms=40, num_epochs=8)
    with another_controller(nodes):
        result = nodes.run("train.yml", "-e", "attach=goes-on")
        run = nodes.path / "runs" / "goes-on"
        verdict = json.loads((run / "verdict.json").read_text())
        assert result.code == 0 and verdict["ok"] and verdict["accuracy"] > 0.5, result.output
        assert {"plan.json", "report.html", "events.jsonl", "nodes"} <= {
            path.name for path in run.iterdir()
        }
        assert "gsync" in result.output and "OK        job goes-on" in result.output, result.output
    again = nodes.run(
        "train.yml", "-e", "attach=goes-on"
    )  # the report of an ended job is written again
    assert again.code == 0 and "OK        job goes-on" in again.output, again.output
    nodes.wait_for_nothing_left()


# Each worker writes a line, and its next line when the test makes a file beside the script. But
# worker 0 waits in the C++ code of MXNet, because the other workers make no kv-store.
TALKS = (
    "import os, sys, time\nname = 'worker-' + os.environ['MXCLUSTER_INDEX']\n"
    "print(name, 'begins', flush=True)\n"
    "if name == 'worker-0':\n    import mxnet as mx\n    mx.kv.create('dist_sync')\n"
    "while not os.path.exists('%s'):\n    time.sleep(0.05)\n"
    "print(name, 'goes on', flush=True)\ntime.sleep(3600)\n"
)


def test_logs_are_followed_and_stacks_shown_while_a_job_runs(nodes, tmp_path):
    """A follower sees a line at once, and ends with the job. Ctrl-C ends the follower alone.

    Stack traces end no process, and come also from a process in MXNet's own code.
    """
    sign = tmp_path / "sign"
    detach(nodes, "talks", kv="dist_sync", script=nodes.script(TALKS % sign), start_timeout=0)
    logs = pathlib.Path(folders(nodes, "talks")[1]) / "worker-1.log"
    until(lambda: logs.exists() and "begins" in logs.read_text())
    pulse = pathlib.Path(folders(nodes, "talks")[0]) / "worker-0.pulse"
    until(lambda: getattr(pulse_file.read(str(pulse)), "phase", "") == phases.CONNECTING)
    refused = nodes.run("logs.yml", "-e", "follow=true", "-e", "only=worker1")
    assert refused.code != 0 and "did you mean 'worker-1'" in refused.output, refused.output

    stacks = nodes.run("stacks.yml", "-e", "job=talks", "-e", "only=worker-0,worker-1")
    assert stacks.code == 0 and "STACKS    of the job talks" in stacks.output, stacks.output
    for place, line in (
        ("node1/worker-0", r"mxnet/kvstore/base\.py\", line \d+ in create"),
        ("node1/worker-0", r"it\.py\", line 6 in <module>"),
        ("node2/worker-1", r"it\.py\", line [78] in <module>"),
    ):
        trace = r"^  %s \|   File .*%s$" % (place, line)
        assert re.findall(trace, stacks.output, re.MULTILINE), stacks.output
    assert "worker-2" not in stacks.output, stacks.output
    assert "death_watch.py" not in stacks.output, "a thread of mxcluster is shown"

    follow = ("logs.yml", "-e", "follow=true", "-e", "only=worker-1", "-e", "lines=100")
    follower = nodes.start(*follow)
    seen = [follow_to(follower, "worker-1 begins")]
    sign.write_text("")
    seen.append(follow_to(follower, "worker-1 goes on"))
    assert "  node2/worker-1 | worker-1 goes on\n" in seen[-1]
    os.killpg(follower.pid, signal.SIGINT)
    output = nodes.finish(follower)
    assert follower.returncode != 0 and "ENDED" not in output, output
    follower = nodes.start(*follow)
    seen = [follow_to(follower, "worker-1 goes on")]
    states = [nodes.status("talks", "node%d" % number)["state"] for number in (1, 2, 3)]
    assert states == ["running"] * 3
    assert nodes.run("stop.yml", "-e", "job=talks").code == 0
    seen.append(nodes.finish(follower))
    output = "".join(seen)
    assert follower.returncode == 0 and "ENDED     the job talks" in seen[-1], output
    assert output.count("worker-1 goes on") == 1 and "worker-2" not in output, output
    ended = nodes.run("stacks.yml", "-e", "job=talks")
    assert ended.code != 0 and "does not run (stopped)" in ended.output, ended.output
    nodes.wait_for_nothing_left()


def follow_to(process, words):
    """Return the output of a running ansible-playbook up to the line with `words`."""
    seen, limit = b"", threading.Timer(PATIENCE, os.killpg, (process.pid, signal.SIGKILL))
    limit.start()
    try:
        for line in iter(process.stdout.readline, b""):
            seen += line
            if words.encode() in line:
                return seen.decode(errors="replace")
    finally:
        limit.cancel()
    raise AssertionError("the playbook ended before %r\n%s" % (words, seen.decode()))


@pytest.mark.soak
def test_a_failure_that_nobody_saw_is_told_to_whoever_attaches(nodes):
    detach(nodes, "fails", kv="dist_sync", script=nodes.script(FAILS))
    nodes.wait_for_nothing_left()
    assert status(nodes)["fails"]["state"] == "failed"
    logs = nodes.run("logs.yml", "-e", "job=fails", "-e", "lines=5")
    assert (
        logs.code == 0
        and "node3/worker-2 | out of luck" in logs.output
        and "node1/scheduler-0 | " in logs.output
    ), logs.output
    result = nodes.run("train.yml", "-e", "attach=fails")
    assert result.code != 0 and "worker 2 on node3: exited with status 1" in result.output, (
        result.output
    )


@pytest.fixture(scope="session")
def outlives(elsewhere):
    """Return the run folder of an ended detached job whose results are still on the nodes."""
    detach(elsewhere, "outlives", kv="dist_sync", num_epochs=2, savemodel=True, start_timeout=0)
    elsewhere.wait_for_nothing_left()
    return elsewhere.path / "runs" / "outlives"


@pytest.mark.soak  # test_lost_nodes.py has the decisions
def test_a_lost_node_costs_its_own_results_alone(nodes, outlives):
    """attach fetches the results of the reachable nodes, and names a lost node.

    A lost node that is a part of the job makes the job fail.
    """
    run, hosts = outlives, nodes.path / "inventory" / "elsewhere" / "hosts.yml"
    whole = hosts.read_text()
    dead = (
        "\n          ansible_connection: ssh\n          ansible_host: %s.99"
        "\n          ansible_port: 1\n"
    ) % NET
    try:
        hosts.write_text(whole.rstrip() + "\n        stranger:" + dead)
        result = nodes.run("train.yml", "-e", "attach=outlives")
        assert result.code == 0 and "OK        job outlives" in result.output, result.output
        assert (
            "no answer from a node: stranger (%s.99, port 1): cannot reach the node" % NET
            in result.output
        ), result.output

        shutil.rmtree(str(run))
        hosts.write_text(whole.rstrip() + dead)  # node3, the last host
        result = nodes.run(
            "train.yml", "-e", json.dumps({"attach": "outlives", "without": ["node3"]})
        )
        verdict = json.loads((run / "verdict.json").read_text())
        failure = verdict["first_failure"]
        assert result.code != 0 and failure["host"] == "node3", result.output
        assert (
            "node3 is gone: it has not answered over ssh since" in failure["reason"]
            and failure["reason"] in result.output
        )
        assert verdict["nodes"] == {
            "node1": "done",
            "node2": "done",
            "node3": "missing",
        }
        assert "not searched: node3" in result.output, result.output
        assert {path.parent.name for path in run.glob("nodes/*/worker-*.log")} == {
            "node1",
            "node2",
        }
        assert checkpoints.last_complete(str(run / "checkpoints"), "mlp")[0].epoch == 2
    finally:
        hosts.write_text(whole)
        shutil.rmtree(str(run), ignore_errors=True)


def test_who_changes_the_plan_on_a_node_is_named(nodes, outlives):
    """A plan that the training user of a node has changed is refused.

    Otherwise the controller would report on another job than the one that ran.
    """
    (kept,) = (nodes.path / ".state" / "local" / "jobs").glob("node3/outlives/job.json")
    plan = kept.read_text()
    kept.write_text(json.dumps(dict(json.loads(plan), processes=json.loads(plan)["processes"][:1])))
    try:
        result = nodes.run("train.yml", "-e", "attach=outlives")
        assert result.code != 0, result.output
        assert (
            "different plans of the job outlives: one plan is on node1, node2, another plan "
            "on node3." in result.output
        ), result.output
        assert not (outlives / "verdict.json").exists()
        result = nodes.run("train.yml", "-e", "attach=outlives", "-e", "without=node3")
        assert result.code == 0 and "OK        job outlives" in result.output, result.output
        shutil.rmtree(str(outlives))
    finally:
        kept.write_text(plan)


def test_of_two_controllers_with_one_job_id_the_loser_leaves_the_winner_alone(nodes):
    """The losing controller is told to choose another id, or to attach.

    On each node the first controller keeps its processes and files.
    """
    options = json.dumps(
        {
            "kv": "dist_sync",
            "script": nodes.script(LONG),
            "detach": True,
            "job_id": "same",
            "start_timeout": 0,
        }
    )
    racers = [nodes.start("train.yml", "-e", options) for _ in range(2)]
    outputs = [nodes.finish(racer) for racer in racers]
    lost = [output for output, racer in zip(outputs, racers) if racer.returncode]
    assert lost, outputs
    for output in lost:
        assert (
            "job_id" in output and "-e attach=same" in output or "which started first" in output
        ), output
        assert "remove" not in output and "stop.yml" not in output, output
    if len(lost) == 1:
        assert set(status(nodes)["same"]["nodes"].values()) == {"running"}
        assert nodes.run("stop.yml", "-e", "job=same").code == 0
    else:  # each controller was first on some nodes
        assert folders(nodes, "same") == []
    nodes.wait_for_nothing_left()


@pytest.mark.soak  # as the test before, with ports in place of an id
def test_of_two_that_want_the_same_ports_at_once_none_is_left_half_started(nodes):
    """Both jobs may pass the check of ports; the nodes decide.

    A job refused by one node runs on no node.
    """
    options = {
        "kv": "dist_sync",
        "script": nodes.script(LONG),
        "detach": True,
        "root_port": 9091,
        "start_timeout": 0,
    }
    racers = {
        job: nodes.start("train.yml", "-e", json.dumps(dict(options, job_id=job)))
        for job in ("race-a", "race-b")
    }
    outputs = {job: nodes.finish(racer) for job, racer in racers.items()}
    won = [job for job, racer in racers.items() if racer.returncode == 0]
    assert len(won) <= 1, outputs
    listing = status(nodes)
    for job in set(racers) - set(won):
        assert "which started first" in outputs[job] or "in use by" in outputs[job], outputs[job]
        assert folders(nodes, job) == [] and job not in listing, listing.get(job)
    for job in won:
        assert set(listing[job]["nodes"].values()) == {"running"}, listing[job]
        assert nodes.run("stop.yml", "-e", "job=" + job).code == 0
    nodes.wait_for_nothing_left()


def test_a_job_that_one_node_cannot_start_runs_on_none(nodes):
    """A file in place of the job's folder blocks the start; the earlier check misses it."""
    blocked = nodes.path / ".state" / "local" / "jobs" / "node3" / "halfway"
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("")
    result, run = nodes.train(
        kv="dist_sync", script=nodes.script(LONG), job_id="halfway", start_timeout=0
    )
    blocked.unlink()
    assert result.code != 0 and not run.exists(), result.output
    assert (
        re.findall(r"fatal: (.*): FAILED!", result.output) == ["[node3]"]
        and str(blocked) in result.output
    ), result.output
    nodes.wait_for_nothing_left()
    assert folders(nodes, "halfway") == []
