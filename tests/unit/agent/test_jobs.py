"""The jobs of a node: the listing, the ports and GPUs that they hold, and conflicts."""

import json
import os

import pytest

from mxcluster.agent import claims, commands, daemon, jobs
from mxcluster.agent.folder import JobFolder
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.model.node_requests import LookRequest
from mxcluster.model.status import Process, Status
from mxcluster.node import probe, processes
from tests.plans import part_json, plan_with
from tests.unit.agent.jobs import answer_of, ask, begin, in_a_process, request
from tests.waiting import until

SLEEP = ["sh", "-c", "exec sleep 60"]


def part(job, port=None, gpus=(), command=SLEEP, lease=0, **more):
    """Return a node's part of a plan: one worker with this port and these GPUs."""
    worker = {"name": "worker-0", "role": "worker", "port": port}
    peer = dict(worker, address="127.0.0.1")
    worker.update(index=0, gpus=list(gpus), command=command)
    peers = [dict(peer, host=host) for host in ("node1", "node2")]
    return part_json(worker, job=job, lease=lease, peers=peers, **more)


@pytest.fixture
def node(tmp_path):
    """Yield a Node and end its jobs after the test."""
    made = Node(tmp_path)
    yield made
    for name in claims.names(str(tmp_path)):
        folder = JobFolder(str(tmp_path / name))
        if claims.runs(folder):
            ask("stop", job_dir=folder.path)


class Node:
    """The folder that contains the job folders of a node."""

    def __init__(self, path):
        self.path = path

    def begin(self, plan):
        """Start a job with the plan in a process of its own, and return the process."""
        return begin("start", job_dir=str(self.path / plan["job"]), plan=plan)

    def start(self, plan):
        return answer_of(self.begin(plan))

    def listing(self):
        found = ask("jobs", jobs_dir=str(self.path), check=True)
        return {entry["job"]: entry for entry in found["jobs"]}


def test_a_running_job_is_listed_with_its_ports_and_gpus(node):
    assert node.start(part("one", 9500, [1, 0]))[0] == 0
    told = node.listing()["one"]
    assert (told["state"], told["ports"], told["gpus"], told["address"]) == (
        "running",
        {"9500": "worker-0"},
        [0, 1],
        "127.0.0.1",
    )
    assert told["nodes"] == ["node1", "node2"] and told["kv"] == "dist_sync"
    assert told["progress"] == {}
    assert told["status"]["processes"][0]["state"] == "running"
    ask("stop", job_dir=str(node.path / "one"))
    assert (node.listing()["one"]["state"], node.listing()["one"]["reason"]) == ("ended", "stopped")
    assert claims.held(str(node.path)) == {"ports": {}, "gpus": {}}


@pytest.mark.parametrize("options", [{"script": "mine.py"}, {"savemodel": True}, {}])
def test_a_node_that_completes_checkpoints_is_known(node, options):
    """Worker 0 of a program completes them, and the worker of a script that has saved some."""
    assert node.start(part("one", options=options))[0] == 0
    saves = "savemodel" in options
    told = node.listing()["one"]
    assert (told["saves"], told["completes"]) == (saves, saves)
    folder = node.path / "one" / "checkpoints"
    folder.mkdir(exist_ok=True)
    (folder / "worker-0-0001.json").write_text("{}")
    told = node.listing()["one"]
    assert (told["saves"], told["completes"]) == (bool(options), bool(options))


def test_torn_and_foreign_folders_do_not_break_the_listing(node):
    for name in ("torn", "list", "deep", "empty", "foreign", ".hidden", "odd", "no agent"):
        (node.path / name).mkdir()
    (node.path / "file").write_text("")
    (node.path / "link").symlink_to(node.path / "torn")
    (node.path / "torn" / "status.json").write_text('{"job": "to')
    (node.path / "list" / "status.json").write_text("[]")
    (node.path / "deep" / "status.json").write_text("[" * 100000)
    (node.path / "foreign" / "letter.txt").write_text("dear")
    odd = {"job": "odd", "started": 1, "agent": {"pid": "x"}, "processes": [3]}
    (node.path / "odd" / "status.json").write_text(json.dumps(odd))
    assert node.start(part("one", 9501))[0] == 0
    told = node.listing()
    assert {job: entry["state"] for job, entry in told.items()} == {
        "one": "running",
        "torn": "broken",
        "list": "broken",
        "deep": "broken",
        "odd": "broken",
    }
    assert all(told[name]["why"] for name in ("torn", "list", "deep", "odd"))
    assert claims.held(str(node.path)) == {"ports": {"127.0.0.1:9501": "one"}, "gpus": {}}
    nowhere = request("jobs", jobs_dir=str(node.path / "nowhere"), check=True)
    assert jobs.listing(nowhere).encode() == {"jobs": [], "waiting": []}


def test_hostile_numbers_in_a_plan_do_not_break_the_listing(node):
    (node.path / "one").mkdir()
    (node.path / "one" / "plan.json").write_text('{"processes": [{"gpus": [1e999]}]}')
    assert node.listing()["one"]["state"] == "broken"


def test_only_the_last_ended_jobs_are_listed(node, monkeypatch):
    for number in range(4):
        folder = node.path / ("job-%d" % number)
        folder.mkdir()
        agent = Process(pid=1, start_time=1)
        known = Status(job=folder.name, agent=agent, started=float(number), processes=[])
        JobFolder(str(folder)).write_status(known.ended_by("done", float(number)))
    monkeypatch.setattr(jobs, "LAST", 2)
    for also, names in (("", ["job-3", "job-2"]), ("job-0", ["job-3", "job-2", "job-0"])):
        found = ask("jobs", jobs_dir=str(node.path), job=also)["jobs"]
        assert [entry["job"] for entry in found] == names


@pytest.mark.slow
@pytest.mark.parametrize(
    "port,gpus,words",
    [
        (9502, [], "port 9502 on 127.0.0.1 is held by the job one"),
        (9503, [0, 1], "GPU 1 is held by the job one"),
    ],
)
def test_a_port_or_gpu_conflict_names_the_other_job_and_leaves_no_folder(node, port, gpus, words):
    assert node.start(part("one", 9502, [1]))[0] == 0
    (node.path / "two").mkdir()
    (node.path / "two" / "model.params").write_bytes(b"brought before")
    code, answer = node.start(part("two", port, gpus))
    assert code == 1 and words in answer["error"] and "which started first" in answer["error"], (
        answer
    )
    assert not (node.path / "two").exists()
    assert node.start(part("three", 9504, [0]))[0] == 0


@pytest.mark.slow
def test_a_conflict_that_only_the_agent_sees_is_named(node, monkeypatch):
    """Another job takes the port between the check of the command and the check of the agent."""
    start_program = daemon._start_program

    def after_another_job(folder, signum):
        assert node.start(part("one", 9508))[0] == 0
        start_program(folder, signum)

    monkeypatch.setattr(daemon, "_start_program", after_another_job)
    with pytest.raises(MxclusterError, match="^port 9508 on 127.0.0.1 is held by the job one"):
        ask("start", job_dir=str(node.path / "two"), plan=part("two", 9508))
    assert not (node.path / "two").exists()


@pytest.mark.slow
def test_one_of_many_simultaneous_starts_gets_the_port(node):
    starters = [node.begin(part("job-%d" % number, 9505)) for number in range(4)]
    codes = [answer_of(starter)[0] for starter in starters]
    assert sorted(codes) == [0, 1, 1, 1] and list(claims.held(str(node.path))["ports"]) == [
        "127.0.0.1:9505"
    ]


@pytest.mark.slow
def test_a_job_with_a_killed_agent_holds_no_port_and_no_gpu(node):
    assert node.start(part("one", 9506, [0]))[0] == 0
    agent = processes.recorded(JobFolder(str(node.path / "one")).status().agent)
    processes.send(agent, 9)
    processes.end_groups([agent])
    assert claims.held(str(node.path)) == {"ports": {}, "gpus": {}}
    assert node.listing()["one"]["reason"] == "failed"
    assert node.start(part("two", 9506, [0]))[0] == 0


def test_every_node_keeps_the_whole_plan_readable_for_its_user_only(node):
    whole = plan_with(job="one", nodes={"node1": {}, "node2": {}}).encode()
    assert node.start(part("one", whole=whole))[0] == 0
    path = node.path / "one" / "job.json"
    part_there = json.loads((node.path / "one" / "plan.json").read_text())
    assert path.stat().st_mode & 0o777 == 0o600 and part_there["whole"] is None
    assert ask("plan", job_dir=str(node.path / "one")) == {"plan": whole}
    path.write_text("{")
    with pytest.raises(BadInput, match="job.json is damaged .*stop.yml"):
        ask("plan", job_dir=str(node.path / "one"))


@pytest.mark.slow
def test_logs_returns_the_last_lines_of_each_log(node):
    lines = ["sh", "-c", "for n in 1 2 3; do echo line $n; done; exec sleep 60"]
    assert node.start(part("one", command=lines))[0] == 0
    folder = JobFolder(str(node.path / "one"))
    until(lambda: "line 3" in folder.log_lines("worker-0"))
    logs = ask("logs", job_dir=folder.path, lines=2)["logs"]
    assert logs["worker-0"] == ["line 2", "line 3"]


@pytest.mark.slow
def test_a_job_without_a_lease_is_not_renewed(node):
    assert node.start(part("one", lease=0))[0] == 0
    folder = JobFolder(str(node.path / "one"))
    before = folder.lease_mtime()
    ask("wait", job_dir=folder.path, seconds=0.3)
    assert folder.lease_mtime() == before


@pytest.mark.slow
def test_a_repeated_start_gets_the_same_answer(node):
    """Ansible repeats the command when a connection breaks; the job is the same one."""
    job = {"job_dir": str(node.path / "one"), "plan": part("one")}
    (code, first), (code_again, again), (refused, other) = [
        in_a_process("start", token=token, **job) for token in ("first's", "first's", "another's")
    ]
    assert first["status"]["agent"] == again["status"]["agent"] and code == code_again == 0
    assert refused and "another controller has started the job one" in other["error"], other
    assert "-e attach=one" in other["error"] and "stop" not in other["error"], other
    assert "remove" not in other["error"], other


@pytest.mark.slow
@pytest.mark.parametrize("command", ["start", "prepare"])
def test_the_second_of_two_controllers_with_one_job_id_is_refused(node, command):
    job = {"job_dir": str(node.path / "one"), "plan": part("one")}
    tokens = ("first's", "second's")
    starters = [begin(command, token=token, **job) for token in tokens]
    codes, answers = zip(*[answer_of(starter) for starter in starters])
    lost = [answer["error"] for answer in answers if "error" in answer]
    assert sorted(codes) == [0, 1] and len(lost) == 1, answers
    assert "another controller has" in lost[0] and "started the job one" in lost[0], lost
    assert "-e attach=one" in lost[0], lost
    assert "stop" not in lost[0] and "remove" not in lost[0], lost
    assert (node.path / "one" / "token").read_text() == tokens[codes.index(0)]
    if command == "start":
        assert claims.runs(JobFolder(str(node.path / "one")))


def test_the_refusal_of_a_job_prepared_long_ago_says_how_to_remove_it(node):
    prepare(node, "one", token="first's")
    os.utime(str(node.path / "one" / "plan.json"), (1, 1))
    with pytest.raises(BadInput, match="remove that job with stop.yml -e job=one"):
        prepare(node, "one", token="second's")


def test_a_taken_job_id_is_refused_before_any_transfer(tmp_path):
    (tmp_path / "one").mkdir()
    assert probe.job_problems(str(tmp_path), "one") == [], "a folder without a job"
    (tmp_path / "one" / "plan.json").write_text("{}")
    assert probe.job_problems(str(tmp_path), "two") == probe.job_problems(None, "one") == []
    request = LookRequest(jobs_dir=str(tmp_path), job="one")
    (problem,) = probe.look(request, claims.held).problems
    assert "choose another job_id" in problem and "-e attach=one" in problem, problem
    assert "stop" not in problem, problem


def prepare(node, job, **more):
    given = {"plan": part(job), "token": "a-token", "secret_env": {"KEY": "value"}}
    folder = str(node.path / job)
    return ask("prepare", job_dir=folder, **dict(given, **more))


def test_a_prepared_job_is_not_overwritten_and_can_be_stopped(node):
    prepare(node, "one")
    prepare(node, "one")  # the same command again
    words = "another controller has just started the job one .*-e attach=one"
    with pytest.raises(BadInput, match=words):
        prepare(node, "one", token="another's")
    stop = request("stop", job_dir=str(node.path / "one"))
    assert commands.stop(stop).ran and not (node.path / "one").exists()
    assert not commands.stop(stop).ran
