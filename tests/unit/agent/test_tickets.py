"""Tickets of the jobs that wait on a node: their order, their lapse, and their ports and GPUs."""

import json
import os
import time
import types

import pytest

from mxcluster.agent import claims, tickets
from mxcluster.entry.commands import carry_out
from mxcluster.model.protocol import Jobs, Look, Queue, Stop
from mxcluster.model.ticket import Ticket
from tests.unit.agent.jobs import Job

WAITS = "%s, which waits for room"


def ticket(job, since=1000.0, lease=90.0, **more):
    return Ticket(job=job, since=since, lease=lease, address="127.0.0.1", **more)


def ahead(root, job=None):
    return [one.job for one in tickets.ahead_of(str(root), job)]


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock of the node."""
    made = types.SimpleNamespace(now=5000.0)
    made.monotonic = lambda: made.now
    monkeypatch.setattr(tickets, "time", made)
    return made


def test_tickets_keep_the_order_of_arrival(tmp_path):
    root = str(tmp_path / "jobs")  # the first job of the node makes this folder
    for job, since in (("late", 30.0), ("first", 10.0), ("same-b", 20.0), ("same-a", 20.0)):
        tickets.renew(root, ticket(job, since))
    tickets.renew(root, ticket("first", 10.0))  # a renewal keeps the place
    assert ahead(root) == ["first", "same-a", "same-b", "late"]
    assert ahead(root, "late") == ["first", "same-a", "same-b"]
    assert ahead(root, "same-b") == ["first", "same-a"] and ahead(root, "first") == []
    assert ahead(root, "without-a-ticket") == ["first", "same-a", "same-b", "late"]
    tickets.remove(root, "first")
    tickets.remove(root, "first")
    assert ahead(root, "same-a") == []


def test_the_ticket_of_a_dead_controller_lapses(tmp_path, clock):
    tickets.renew(str(tmp_path), ticket("dead", 1.0, lease=90))
    clock.now += 90
    assert ahead(tmp_path) == ["dead"]
    clock.now += 1
    assert ahead(tmp_path) == []
    tickets.renew(str(tmp_path), ticket("lives", 2.0))
    assert os.listdir(str(tmp_path / tickets.FOLDER)) == ["lives.json"]
    tickets.renew(str(tmp_path), ticket("dead", 1.0))  # its controller lives after all
    assert ahead(tmp_path, "lives") == ["dead"]


def test_a_ticket_of_an_earlier_boot_lapses(tmp_path, clock):
    tickets.renew(str(tmp_path), ticket("before"))
    clock.now = 7.0
    assert ahead(tmp_path) == []


@pytest.mark.parametrize("content", ["", "[]", '{"job": "bad"}', '{"job": 1e999}', "[" * 5000])
def test_a_damaged_ticket_counts_as_none(tmp_path, content):
    tickets.renew(str(tmp_path), ticket("good"))
    (tmp_path / tickets.FOLDER / "bad.json").write_text(content)
    assert ahead(tmp_path) == ["good"]


def test_a_ticket_for_all_of_time_is_damaged(tmp_path):
    tickets.renew(str(tmp_path), ticket("bad"))
    path = tmp_path / tickets.FOLDER / "bad.json"
    for field, value in (("lease", 1e9), ("since", -1), ("gpus", [10**6]), ("ports", [10**6])):
        path.write_text(json.dumps(dict(json.loads(path.read_text()), **{field: value})))
        assert ahead(tmp_path) == [], field
        tickets.renew(str(tmp_path), ticket("bad"))


def test_a_waiting_job_holds_its_ports_and_gpus_against_later_jobs(tmp_path):
    root = str(tmp_path)
    tickets.renew(root, ticket("first", 1.0, ports=[9500], gpus=[0, 1]))
    tickets.renew(root, ticket("second", 2.0, ports=[9500, 9501], gpus=[1]))
    first, second = WAITS % "first", WAITS % "second"
    ports = {"127.0.0.1:9500": first, "127.0.0.1:9501": second}
    assert claims.held(root) == {"ports": ports, "gpus": {"0": first, "1": first}}
    assert claims.held(root, but="second") == {
        "ports": {"127.0.0.1:9500": first},
        "gpus": {"0": first, "1": first},
    }
    assert claims.held(root, but="first") == {"ports": {}, "gpus": {}}


def test_a_node_answers_with_the_queue_and_with_the_job_before(tmp_path):
    root = tmp_path / "jobs"
    before = Job(root / "before")

    def ask(job, *place, **more):
        wanted = ticket(job, *(place or (2.0,)), **more)
        return carry_out(Queue(job_dir=str(root / job), ticket=wanted))

    assert ask("new", after="before").after == "unknown"
    os.makedirs(before.path)
    before.start("sleep 60")
    try:
        assert ask("new", after="before").after == "runs"
        assert ask("third", after="new").after == "runs", "a waiting job may start yet"
        ask("other", 1.0, gpus=[3])
        found = ask("new", gpus=[3])
        assert found.after == "" and found.held.gpus == {"3": "the job " + WAITS % "other"}
        look = Look.decode({"request": {"jobs_dir": str(root), "job": "third"}})
        assert carry_out(look).held.gpus == {"3": "the job " + WAITS % "other"}
        look = Look.decode({"request": {"jobs_dir": str(root), "job": "other"}})
        assert carry_out(look).held.gpus == {}
        waiting = carry_out(Jobs(jobs_dir=str(root))).waiting
        assert [(one.job, one.after) for one in waiting] == [
            ("other", ""),
            ("new", ""),
            ("third", "new"),
        ]
        carry_out(Queue(job_dir=str(root / "other")))
        assert ahead(root) == ["new", "third"], "the job has withdrawn its ticket"
        carry_out(Queue(job_dir=str(root / "other")))
    finally:
        carry_out(Stop(job_dir=before.path))
    assert ask("new", after="before").after == "ended"


@pytest.mark.parametrize("command, max_restarts", [("exit 3", 1), ("exit 3", 0), ("exit 0", 1)])
def test_a_failed_job_with_another_attempt_counts_as_running(tmp_path, command, max_restarts):
    """Only for a time, because the controller may decide against the attempt."""
    job = Job(tmp_path / "job-1")
    os.makedirs(job.path)
    job.start(command, options={"max_restarts": max_restarts, "restart_delay": 30.0})
    assert job.end() and job.nothing_left()
    more = command == "exit 3" and max_restarts
    assert claims.state_of(str(tmp_path), "job-1") == ("runs" if more else "ended")
    for passed, state in ((claims.RESTART + 20, "runs"), (claims.RESTART + 31, "ended")):
        path = tmp_path / "job-1" / "status.json"
        known = json.loads(path.read_text())
        path.write_text(json.dumps(dict(known, ended=time.time() - passed)))
        assert claims.state_of(str(tmp_path), "job-1") == (state if more else "ended")


@pytest.mark.parametrize(
    "running, after, state",
    [
        ("mine-r2", "mine", "runs"),
        ("mine-r2", "mine-r2", "runs"),
        ("mine-r2", "mine-r1", "unknown"),
        ("mine-rest", "mine", "unknown"),
        ("m" * 90 + "-r1", "m" * 100, "runs"),
    ],
)
def test_the_restarts_of_a_job_count_as_the_job(tmp_path, running, after, state):
    (tmp_path / running).mkdir()  # a job that may be about to start
    assert claims.state_of(str(tmp_path), after) == state
