"""Jobs that wait for room or for another job, on the local inventory (wait_for_room, after)."""

import contextlib
import json
import os
import signal

import pytest

from tests.playbooks.conftest import end

LONG = "import time\nprint('here', flush=True)\ntime.sleep(3600)\n"
BRIEF = "import mxnet as mx\nmx.kv.create('dist_sync')\n"
FAILS = "raise SystemExit('out of luck')\n"
PORT = 9300


@pytest.fixture
def nodes(pair, tmp_path):
    """Return the project on two nodes, where the detached job `holder` has the port PORT.

    The job has the id of a restart of the job `restarted`.
    """
    for name, text in (("it.py", LONG), ("brief.py", BRIEF), ("fails.py", FAILS)):
        (tmp_path / name).write_text(text)
    pair.brief = str(tmp_path / "brief.py")
    pair.restarted = "holder-" + tmp_path.name[-20:]
    pair.holder = pair.restarted + "-r1"
    result, _ = pair.train(
        kv="dist_sync",
        script=str(tmp_path / "it.py"),
        job_id=pair.holder,
        detach=True,
        root_port=PORT,
        start_timeout=0,
    )
    assert result.code == 0, result.output
    pair.begun = []
    yield pair
    for process in pair.begun:
        end(process)
    for ticket in (pair.path / ".state" / "local" / "jobs").glob("*/.tickets/*.json"):
        ticket.unlink()  # of a failed test; a killed controller's ticket would lapse later
    for pid in pair.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def begin(nodes, job, **options):
    """Start a short job on PORT, and return its ansible-playbook."""
    given = {"kv": "dist_sync", "script": nodes.brief, "root_port": PORT, "job_id": job}
    nodes.begun.append(nodes.start("train.yml", "-e", json.dumps(dict(given, **options))))
    return nodes.begun[-1]


def tickets(nodes):
    """Return {host: the jobs that have a ticket}."""
    folder = nodes.path / ".state" / "local" / "jobs"
    return {
        host: sorted(path.stem for path in (folder / host / ".tickets").glob("*.json"))
        for host in ("node1", "node2")
    }


def wait_for_tickets(nodes, process, *jobs):
    nodes.until(process, lambda: all(set(jobs) <= set(there) for there in tickets(nodes).values()))


def listed(nodes):
    """Return the jobs of status.yml and its output."""
    result = nodes.run("status.yml")
    assert result.code == 0, result.output
    status = json.loads((nodes.path / ".state" / "local" / "status.json").read_text())
    return {job["job"]: job for job in status["jobs"]}, result.output


def end_holder(nodes):
    result = nodes.run("stop.yml", "-e", "job=" + nodes.holder)
    assert result.code == 0, result.output


def times(nodes, job):
    status = nodes.status(job, "node1")
    return status["started"], status["ended"]


def refusal(nodes, process, job):
    """Return the output of a job that is refused, and leaves neither a run folder nor a ticket."""
    output = nodes.finish(process)
    assert process.returncode != 0 and not (nodes.path / "runs" / job).exists(), output
    assert not any(job in there for there in tickets(nodes).values()), output
    return output


@pytest.mark.soak  # test_queue_action.py waits, and test_tickets.py has the order
def test_jobs_that_wait_for_room_start_in_the_order_of_their_arrival(nodes):
    """A job that does not wait is refused, and only a killed controller's ticket has to lapse."""
    (nodes.path / ".state" / "local" / "jobs" / "node2" / "q-taken").mkdir()
    (nodes.path / ".state" / "local" / "jobs" / "node2" / "q-taken" / "plan.json").write_text("{}")
    taken = begin(nodes, "q-taken", wait_for_room="1h")
    late = begin(nodes, "q-late", wait_for_room="3s")
    leaves = begin(nodes, "q-leaves", wait_for_room="1h")
    dead = begin(nodes, "q-dead", wait_for_room="1h", lease=5)
    wait_for_tickets(nodes, leaves, "q-leaves", "q-dead")
    os.killpg(leaves.pid, signal.SIGINT)  # Ctrl-C in its terminal
    assert "interrupted" in refusal(nodes, leaves, "q-leaves")
    os.killpg(dead.pid, signal.SIGKILL)
    nodes.finish(dead)
    output = refusal(nodes, late, "q-late")
    assert "The job has waited for 0:03: give a longer wait_for_room" in output, output
    output = refusal(nodes, taken, "q-taken")
    assert "the job_id q-taken is taken on this node" in output, output
    assert "waiting for" not in output, "a problem is found before the wait"

    waiting = {}
    for job, seconds in (("q-first", "1h"), ("q-second", 3600), ("q-third", "1d")):
        waiting[job] = begin(nodes, job, wait_for_room=seconds)
        wait_for_tickets(nodes, waiting[job], job)
    barges = begin(nodes, "q-barges")
    # The first poll writes the ticket, and the second one its reasons.
    nodes.until(waiting["q-third"], lambda: listed(nodes)[0]["q-third"]["waits"]["reasons"])
    jobs, table = listed(nodes)
    found = [job for job, entry in jobs.items() if entry["state"] == "waiting"]
    assert found[-3:] == ["q-first", "q-second", "q-third"], "in the order of the queue"
    assert "port %d on " % PORT in " ".join(jobs["q-third"]["waits"]["reasons"]), jobs["q-third"]
    assert "began to wait for room 0:" in table and nodes.holder in table, table
    assert "in use by the job" in refusal(nodes, barges, "q-barges")

    end_holder(nodes)
    for job, process in waiting.items():
        output = nodes.finish(process)
        assert process.returncode == 0 and "OK        job " + job in output, output
        words = "waiting for room: node1: port %d on " % PORT
        assert words in output and "in use by the job " + nodes.holder in output, output
    assert times(nodes, "q-first")[1] <= times(nodes, "q-second")[0]
    assert times(nodes, "q-second")[1] <= times(nodes, "q-third")[0]
    assert tickets(nodes) == {"node1": [], "node2": []}, "a started job has no ticket"
    nodes.wait_for_nothing_left()


def test_a_job_waits_for_the_end_of_another_job(nodes, tmp_path):
    """The other job may be a restart, may wait itself, and may fail."""
    lonely = begin(nodes, "q-lonely", after="nothing")
    script, free = str(tmp_path / "fails.py"), {"root_port": "auto"}
    fails = begin(nodes, "q-fails", after=nodes.restarted, script=script, **free)
    wait_for_tickets(nodes, fails, "q-fails")
    last = begin(nodes, "q-last", after="q-fails", **free)
    wait_for_tickets(nodes, last, "q-last")
    output = refusal(nodes, lonely, "q-lonely")
    assert "after=nothing: no node of this job has such a job" in output, output
    jobs, table = listed(nodes)
    assert jobs["q-fails"]["waits"]["after"] == nodes.restarted, jobs
    assert "began to wait for the end of the job q-fails 0:" in table, table
    assert fails.poll() is None and not (nodes.path / "runs" / "q-fails").exists()
    end_holder(nodes)
    output = nodes.finish(fails)
    assert fails.returncode != 0 and "out of luck" in output, output
    assert output.count("waiting for the end of the job " + nodes.restarted) == 1, output
    output = nodes.finish(last)
    assert last.returncode == 0 and "OK        job q-last" in output, output
    assert times(nodes, nodes.holder)[1] <= times(nodes, "q-fails")[0]
    assert times(nodes, "q-fails")[1] <= times(nodes, "q-last")[0]
    nodes.wait_for_nothing_left()
