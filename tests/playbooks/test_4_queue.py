"""Jobs that wait for room or for another job, on the local inventory (wait_for_room, after)."""

import contextlib
import json
import os
import signal

import pytest

from tests.waiting import until

LONG = "import time\nprint('here', flush=True)\ntime.sleep(3600)\n"
PORT = 9300


@pytest.fixture
def nodes(pair, tmp_path):
    """Return the project on two nodes, where the detached job `holder` has the port PORT."""
    (tmp_path / "it.py").write_text(LONG)
    result, _ = pair.train(
        kv="dist_sync",
        script=str(tmp_path / "it.py"),
        job_id="holder-" + tmp_path.name[-20:],
        detach=True,
        root_port=PORT,
        start_timeout=0,
    )
    assert result.code == 0, result.output
    pair.holder = "holder-" + tmp_path.name[-20:]
    yield pair
    for pid in pair.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def begin(nodes, job, **options):
    """Start a short training job on PORT, and return its ansible-playbook."""
    given = {"kv": "dist_sync", "num_epochs": 1, "root_port": PORT, "job_id": job, "tag": "q"}
    return nodes.start("train.yml", "-e", json.dumps(dict(given, **options)))


def tickets(nodes):
    """Return {host: the jobs that have a ticket}."""
    folder = nodes.path / ".state" / "local" / "jobs"
    return {
        host: sorted(path.stem for path in (folder / host / ".tickets").glob("*.json"))
        for host in ("node1", "node2")
    }


def wait_for_tickets(nodes, process, *jobs):
    nodes.until(process, lambda: all(set(jobs) <= set(there) for there in tickets(nodes).values()))


def end_holder(nodes):
    result = nodes.run("stop.yml", "-e", "job=" + nodes.holder)
    assert result.code == 0, result.output


def times(nodes, job):
    status = nodes.status(job, "node1")
    return status["started"], status["ended"]


def test_jobs_that_wait_for_room_start_in_the_order_of_their_arrival(nodes):
    """A job that does not wait is refused, and a dead controller's ticket lapses."""
    dead = begin(nodes, "dead", wait_for_room="1h", lease=5)
    wait_for_tickets(nodes, dead, "dead")
    os.killpg(dead.pid, signal.SIGKILL)
    dead.communicate()
    first = begin(nodes, "first", wait_for_room="1h")
    wait_for_tickets(nodes, first, "first")
    second = begin(nodes, "second", wait_for_room=3600)
    wait_for_tickets(nodes, second, "second")

    refused, run = nodes.train(kv="dist_sync", root_port=PORT, job_id="barges")
    assert refused.code != 0 and "in use by the job" in refused.output, refused.output
    assert not run.exists()
    late, run = nodes.train(kv="dist_sync", root_port=PORT, job_id="late", wait_for_room="3s")
    assert late.code != 0 and not run.exists(), late.output
    assert "The job has waited for 0:03: give a longer wait_for_room" in late.output, late.output

    end_holder(nodes)
    for job, process in (("first", first), ("second", second)):
        output = nodes.finish(process)
        assert process.returncode == 0 and "OK        job " + job in output, output
        words = "waiting for room: node1: port %d on " % PORT
        assert words in output and "in use by the job " + nodes.holder in output, output
    assert times(nodes, "first")[1] <= times(nodes, "second")[0]
    assert set(tickets(nodes)["node1"]) <= {"late"}, "a started job has no ticket"
    nodes.wait_for_nothing_left()


def test_a_job_waits_for_the_end_of_another_job(nodes):
    refused, run = nodes.train(kv="dist_sync", after="nothing", job_id="lonely")
    assert refused.code != 0 and not run.exists(), refused.output
    assert "after=nothing: no node of this job has such a job" in refused.output, refused.output

    process = begin(nodes, "next", root_port="auto", after=nodes.holder)
    seen = []
    os.set_blocking(process.stdout.fileno(), False)

    def says():
        with contextlib.suppress(BlockingIOError):
            seen.append(os.read(process.stdout.fileno(), 1 << 16).decode(errors="replace"))
        return "waiting for the end of the job " + nodes.holder in "".join(seen)

    until(says, 120, lambda: "".join(seen))
    assert process.poll() is None and not (nodes.path / "runs" / "next").exists()
    assert tickets(nodes)["node2"] == [] or "next" not in tickets(nodes)["node2"]
    end_holder(nodes)
    output = nodes.finish(process)
    assert process.returncode == 0 and "OK        job next" in output, output
    assert times(nodes, nodes.holder)[1] <= times(nodes, "next")[0]
    nodes.wait_for_nothing_left()
