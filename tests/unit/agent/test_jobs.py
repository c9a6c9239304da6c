"""The jobs of a node: the listing, the ports and GPUs that they hold, and conflicts."""

import json
import os
import subprocess
import sys

import pytest

from mxcluster.agent import claims, commands, jobs
from mxcluster.agent.__main__ import run
from mxcluster.agent.folder import JobFolder
from mxcluster.errors import BadInput
from mxcluster.node import processes
from tests.unit.agent.jobs import PACKAGE
from tests.waiting import until

SLEEP = ["sh", "-c", "exec sleep 60"]


def part(job, port=None, gpus=(), command=SLEEP, lease=0, **more):
    """Return a node's part of a plan: one worker with this port and these GPUs."""
    worker = {
        "name": "worker-0",
        "role": "worker",
        "index": 0,
        "host": "node1",
        "address": "127.0.0.1",
        "port": port,
        "gpus": list(gpus),
        "command": command,
        "env": {},
    }
    return dict(
        {
            "schema": 1,
            "job": job,
            "host": "node1",
            "kv": "dist_sync",
            "lease": lease,
            "processes": [worker],
            "files": {},
            "peers": [
                {
                    "host": host,
                    "name": "worker-0",
                    "role": "worker",
                    "address": "127.0.0.1",
                    "port": port,
                }
                for host in ("node1", "node2")
            ],
        },
        **more,
    )


@pytest.fixture
def node(tmp_path):
    """Yield a Node and end its jobs after the test."""
    made = Node(tmp_path)
    yield made
    for name in claims.names(str(tmp_path)):
        folder = JobFolder(str(tmp_path / name))
        if claims.runs(folder):
            run(["stop", "--job-dir", folder.path])


class Node:
    """The folder that contains the job folders of a node."""

    def __init__(self, path):
        self.path = path

    def begin(self, plan):
        """Start `mxcluster.agent start`, with the plan on stdin, and return the process."""
        starter = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mxcluster.agent",
                "start",
                "--plan",
                "--job-dir",
                str(self.path / plan["job"]),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=PACKAGE),
        )
        starter.stdin.write(json.dumps(plan).encode())
        starter.stdin.close()
        return starter

    def answer(self, starter):
        """Return the exit status and the answer of a process of `begin`."""
        said = starter.stdout.read()
        return starter.wait(timeout=60), json.loads(said.decode())

    def start(self, plan):
        return self.answer(self.begin(plan))

    def listing(self, *arguments):
        return {
            entry["job"]: entry
            for entry in run(["jobs", "--jobs-dir", str(self.path)] + list(arguments))["jobs"]
        }


def test_a_running_job_is_listed_with_its_ports_and_gpus(node):
    assert node.start(part("one", 9500, [1, 0]))[0] == 0
    told = node.listing()["one"]
    assert (told["state"], told["ports"], told["gpus"], told["address"]) == (
        "running",
        {"9500": "worker-0"},
        [0, 1],
        "127.0.0.1",
    )
    assert (
        told["nodes"] == ["node1", "node2"] and told["kv"] == "dist_sync" and told["progress"] == {}
    )
    assert told["status"]["processes"][0]["state"] == "running"
    run(["stop", "--job-dir", str(node.path / "one")])
    assert (node.listing()["one"]["state"], node.listing()["one"]["reason"]) == ("ended", "stopped")
    assert claims.held(str(node.path)) == {"ports": {}, "gpus": {}}


def test_torn_and_foreign_folders_do_not_break_the_listing(node):
    for name in ("torn", "list", "deep", "empty", "foreign", ".hidden", "odd", "no agent"):
        (node.path / name).mkdir()
    (node.path / "file").write_text("")
    (node.path / "link").symlink_to(node.path / "torn")
    (node.path / "torn" / "status.json").write_text('{"job": "to')
    (node.path / "list" / "status.json").write_text("[]")
    (node.path / "deep" / "status.json").write_text("[" * 100000)
    (node.path / "foreign" / "letter.txt").write_text("dear")
    (node.path / "odd" / "status.json").write_text(
        json.dumps(
            {
                "job": "odd",
                "host": "node1",
                "state": "running",
                "started": 1,
                "agent": {"pid": "x"},
                "processes": [3],
            }
        )
    )
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
    assert run(["jobs", "--jobs-dir", str(node.path / "nowhere")]) == {"jobs": []}


def test_hostile_numbers_in_a_plan_do_not_break_the_listing(node):
    (node.path / "one").mkdir()
    (node.path / "one" / "plan.json").write_text('{"processes": [{"gpus": [1e999]}]}')
    assert node.listing()["one"]["state"] == "broken"


def test_the_next_job_removes_the_token_of_a_job_ended_by_a_power_loss(node):
    for name, state, agent in (("off", "running", 2**22 + 1), ("prepared", None, None)):
        (node.path / name).mkdir()
        (node.path / name / "token").write_text("secret")
        if state:
            (node.path / name / "status.json").write_text(
                json.dumps(
                    {
                        "job": name,
                        "host": "node1",
                        "state": state,
                        "agent": {"pid": agent, "start_time": 1},
                        "processes": [],
                    }
                )
            )
    assert node.start(part("one", 9503))[0] == 0
    assert (
        not (node.path / "off" / "token").exists() and (node.path / "prepared" / "token").exists()
    )


def test_only_the_last_ended_jobs_are_listed(node):
    for number in range(4):
        folder = node.path / ("job-%d" % number)
        folder.mkdir()
        (folder / "status.json").write_text(
            json.dumps(
                {
                    "job": folder.name,
                    "host": "node1",
                    "state": "ended",
                    "reason": "done",
                    "started": number,
                    "ended": number,
                    "agent": {"pid": 1, "start_time": 1},
                    "processes": [],
                    "first_failure": None,
                }
            )
        )
    assert [entry["job"] for entry in jobs.listing(str(node.path), last=2)["jobs"]] == [
        "job-3",
        "job-2",
    ]
    assert [
        entry["job"] for entry in jobs.listing(str(node.path), last=2, also="job-0")["jobs"]
    ] == ["job-3", "job-2", "job-0"]


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


def test_one_of_many_simultaneous_starts_gets_the_port(node):
    starters = [node.begin(part("job-%d" % number, 9505)) for number in range(4)]
    codes = [node.answer(starter)[0] for starter in starters]
    assert sorted(codes) == [0, 1, 1, 1] and list(claims.held(str(node.path))["ports"]) == [
        "127.0.0.1:9505"
    ]


def test_a_job_with_a_killed_agent_holds_no_port_and_no_gpu(node):
    assert node.start(part("one", 9506, [0]))[0] == 0
    agent = processes.Identity(**JobFolder(str(node.path / "one")).status()["agent"])
    processes.send(agent, 9)
    processes.end_groups([agent])
    assert claims.held(str(node.path)) == {"ports": {}, "gpus": {}}
    assert node.listing()["one"]["reason"] == "failed"
    assert node.start(part("two", 9506, [0]))[0] == 0


def test_an_ended_job_is_not_overwritten_by_a_job_of_the_same_name(node):
    assert node.start(part("one", 9507))[0] == 0
    run(["stop", "--job-dir", str(node.path / "one")])
    assert node.start(part("other", 9507))[0] == 0
    code, answer = node.start(part("one", 9507))
    assert code == 1 and "choose another job_id" in answer["error"]
    assert (node.path / "one" / "status.json").exists()


def test_every_node_keeps_the_whole_plan_readable_for_its_user_only(node):
    whole = {"job": "one", "nodes": {"node1": {}, "node2": {}}}
    assert node.start(part("one", whole=whole))[0] == 0
    path = node.path / "one" / "job.json"
    assert (
        path.stat().st_mode & 0o777 == 0o600
        and "whole" not in (node.path / "one" / "plan.json").read_text()
    )
    assert run(["plan", "--job-dir", str(node.path / "one")]) == {"plan": whole}
    path.write_text("{")
    from mxcluster.errors import BadInput

    with pytest.raises(BadInput, match="job.json is not JSON .*stop.yml"):
        run(["plan", "--job-dir", str(node.path / "one")])


def test_logs_returns_the_last_lines_of_each_log(node):
    assert (
        node.start(
            part(
                "one", command=["sh", "-c", "for n in 1 2 3; do echo line $n; done; exec sleep 60"]
            )
        )[0]
        == 0
    )
    folder = JobFolder(str(node.path / "one"))
    until(lambda: "line 3" in folder.log_lines("worker-0"))
    assert run(["logs", "--job-dir", folder.path, "--lines", "2"])["logs"]["worker-0"] == [
        "line 2",
        "line 3",
    ]


def test_a_job_without_a_lease_is_not_renewed(node):
    assert node.start(part("one", lease=0))[0] == 0
    folder = JobFolder(str(node.path / "one"))
    before = folder.lease_mtime()
    run(["wait", "--job-dir", folder.path, "--seconds", "0.3", "--renew"])
    assert folder.lease_mtime() == before


def test_a_repeated_start_gets_the_same_answer(node):
    """Ansible repeats the command when a connection breaks; the job is the same one."""
    given = {"plan": part("one"), "token": "the job's"}
    starters = [
        subprocess.run(
            [
                sys.executable,
                "-m",
                "mxcluster.agent",
                "start",
                "--plan",
                "--secret-env",
                "--job-dir",
                str(node.path / "one"),
            ],
            input=json.dumps(dict(given, **more)).encode(),
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=PACKAGE),
        )
        for more in ({}, {}, {"token": "another's"})
    ]
    first, again, other = [json.loads(starter.stdout.decode()) for starter in starters]
    assert first["pid"] == again["pid"] and [starter.returncode for starter in starters][:2] == [
        0,
        0,
    ]
    assert (
        starters[2].returncode != 0
        and "another controller has started the job one" in other["error"]
    ), other
    assert (
        "-e attach=one" in other["error"]
        and "stop" not in other["error"]
        and "remove" not in other["error"]
    ), other


@pytest.mark.parametrize("command", ["start", "prepare"])
def test_the_second_of_two_controllers_with_one_job_id_is_refused(node, command):
    given = [
        json.dumps({"plan": part("one"), "token": token}).encode()
        for token in ("first's", "second's")
    ]
    starters = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mxcluster.agent",
                command,
                "--plan",
                "--secret-env",
                "--job-dir",
                str(node.path / "one"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=PACKAGE),
        )
        for _ in given
    ]
    for starter, told in zip(starters, given):
        starter.stdin.write(told)
        starter.stdin.close()
    answers = [json.loads(starter.stdout.read().decode()) for starter in starters]
    lost = [answer["error"] for answer in answers if "error" in answer]
    assert sorted(starter.wait() for starter in starters) == [0, 1] and len(lost) == 1, answers
    assert (
        "another controller has" in lost[0]
        and "started the job one" in lost[0]
        and "-e attach=one" in lost[0]
    ), lost
    assert "stop" not in lost[0] and "remove" not in lost[0], lost
    winner = given[[index for index, answer in enumerate(answers) if "error" not in answer][0]]
    assert (node.path / "one" / "token").read_text() == json.loads(winner.decode())["token"]
    if command == "start":
        assert claims.runs(JobFolder(str(node.path / "one")))


def test_the_refusal_of_a_job_prepared_long_ago_says_how_to_remove_it(node):
    argv = [
        sys.executable,
        "-m",
        "mxcluster.agent",
        "prepare",
        "--plan",
        "--secret-env",
        "--job-dir",
        str(node.path / "one"),
    ]
    for token in ("first's", "second's"):
        ran = subprocess.run(
            argv,
            input=json.dumps({"plan": part("one"), "token": token}).encode(),
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=PACKAGE),
        )
        os.utime(str(node.path / "one" / "plan.json"), (1, 1))
    assert (
        ran.returncode == 1
        and "remove that job with stop.yml -e job=one" in json.loads(ran.stdout.decode())["error"]
    ), ran


def test_a_taken_job_id_is_refused_before_any_transfer(tmp_path):
    from mxcluster.node import probe as look

    (tmp_path / "one").mkdir()
    assert look.job_problems(str(tmp_path), "one") == [], "a folder without a job"
    (tmp_path / "one" / "plan.json").write_text("{}")
    assert look.job_problems(str(tmp_path), "two") == look.job_problems(None, "one") == []
    (problem,) = look.look({"jobs_dir": str(tmp_path), "job": "one"})["problems"]
    assert (
        "choose another job_id" in problem and "-e attach=one" in problem and "stop" not in problem
    ), problem


def prepare(node, job, **more):
    given = {"plan": part(job), "token": "a token", "secret_env": {"KEY": "value"}}
    return commands.prepare(JobFolder(str(node.path / job)), **dict(given, **more))


def test_a_prepared_job_is_not_overwritten_and_can_be_stopped(node):
    prepare(node, "one")
    prepare(node, "one")  # the same command again
    with pytest.raises(
        BadInput, match="another controller has just started the job one .*-e attach=one"
    ):
        prepare(node, "one", token="another's")
    answer = commands.stop(JobFolder(str(node.path / "one")))
    assert answer == {"ran": True, "status": None, "left": []} and not (node.path / "one").exists()
    assert commands.stop(JobFolder(str(node.path / "one")))["ran"] is False


def test_a_job_that_cannot_start_leaves_no_folder(node):
    plan = part("one")
    del plan["processes"][0]["env"]
    code, answer = node.start(plan)
    assert code != 0 and "env" in answer["error"] and not (node.path / "one").exists(), answer
