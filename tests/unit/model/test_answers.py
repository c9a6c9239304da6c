"""Answers of nodes: invalid ones are refused, and shown texts have no control characters."""

import json
from pathlib import Path

import pytest

from mxcluster.errors import BadInput
from mxcluster.job import listing
from mxcluster.job.report import statuses
from mxcluster.model import failures, protocol
from mxcluster.model.answers import JobList
from mxcluster.model.check_answer import RendezvousReport
from mxcluster.model.shapes import Wrong
from mxcluster.model.status import Status
from tests.plans import part_json
from tests.unit.job.report import fake_run
from tests.unit.wrong_values import NOT_WHOLE, deep

STATUS = {
    "job": "j",
    "host": "node1",
    "agent": {"pid": 7, "start_time": 5},
    "started": 1.0,
    "processes": [{"name": "worker-0", "role": "worker", "index": 0, "pid": 8, "start_time": 6}],
}
FAILURE = {
    "host": "node9",
    "role": "worker",
    "index": 0,
    "name": "worker-0",
    "reason": "\x1b[2Jkilled",
    "exit_code": -9,
    "time": 2.0,
    "log": ["a\x1b]0;title\x07b", "\tx"],
}
WAIT = {"status": STATUS}


def check(command, answer, job="j", **more):
    """Return the answer of node1 to a command, as the controller checks it."""
    given = {"jobs_dir": "/jobs", "job_dir": "/jobs/" + job, "output": "/o", "file": "f"}
    given["remove"] = ["old"]
    given["request"] = {"etc_dir": "/etc/mxcluster", "folders": []}
    request = protocol.COMMANDS[command].decode(dict(given, plan=part_json()))
    return request.checked("node1", dict(answer, **more)).encode()


def test_answers_of_the_last_version_are_read():
    """The samples come from a job with the code of version 0.1. Some were completed by hand."""
    path = Path(__file__).parent / "samples" / "answers-0.1.jsonl"
    found = []
    for line in path.read_text().splitlines():
        [(command, answer)] = json.loads(line).items()
        found.append(check(command, answer, job="job-1"))
    start, wait, stop, jobs, state, queued, echo, collect = found
    assert start["status"]["agent"]["pid"] == 26582
    assert wait["status"]["first_failure"]["kind"] == failures.PROGRAM
    assert wait["status"]["pulses"]["worker-0"]["keys"]["fewer"] == {"fc1_bias": 6}
    assert stop["status"] == wait["status"] == jobs["jobs"][0]["status"]
    assert state["status"]["rendezvous"]["name"] == "meeting"
    assert list(state["progress"]["worker-0"]) == ["start"]
    assert queued["status"]["batch"]["why"] == "Resources"
    assert echo["status"]["first_failure"]["kind"] == failures.PEER
    assert collect["output"] == "/tmp/x.tar"


@pytest.mark.parametrize(
    "change, words",
    [
        ({"state": "finished"}, "status.state='finished' is not one of running, ended"),
        ({"job": "other"}, "status.job='other' is not the requested job j"),
        ({"agent": {"pid": "x", "start_time": 1}}, "status.agent.pid"),
        ({"processes": "none"}, "status.processes"),
        ({"first_failure": dict(FAILURE, log="x")}, "status.first_failure.log"),
    ],
)
def test_an_invalid_status_is_refused_by_node_and_field(change, words):
    with pytest.raises(BadInput) as refusal:
        check("wait", WAIT, status=dict(STATUS, **change))
    assert str(refusal.value).startswith(
        "the answer of node1 to the command wait is invalid: "
    ) and words in str(refusal.value)


def test_host_names_are_overwritten_and_control_characters_removed():
    told = check(
        "wait", WAIT, status=dict(STATUS, host="node9", kv="\x1b[31mdist\r", first_failure=FAILURE)
    )["status"]
    assert told["host"] == told["first_failure"]["host"] == "node1" and told["kv"] == "dist"
    assert told["first_failure"]["reason"] == "killed"
    assert told["first_failure"]["log"] == ["a]0;titleb", "    x"]


def test_the_latest_events_have_known_fields_only():
    events = {
        "worker-0": {
            "batch": {"event": "batch", "time": 1, "done": 0.5, "own": {"deep": ["x\x1b[1m"]}},
            "end": {"event": "end", "time": 1, "accuracy": "high"},
        }
    }
    assert check("wait", WAIT, progress=events)["progress"] == {
        "worker-0": {"batch": {"event": "batch", "time": 1, "done": 0.5}}
    }


@pytest.mark.parametrize(
    "command, answer, words",
    [
        (
            "look",
            {"problems": [], "held": {"ports": {"x": "y"}, "gpus": {}}, "fits": True},
            "held.ports",
        ),
        ("start", {"job": "a/b", "status": None}, "job"),
        ("stop", {"ran": True, "status": None, "left": "x"}, "left"),
        ("record", {"record": {"hostname": "x\ny"}}, "record.hostname"),
        ("jobs", {"jobs": {}}, "jobs"),
        ("jobs", {"jobs": [], "disk": {"jobs": 1, "bytes": -1, "free": 0}}, "disk.bytes"),
        ("logs", {"logs": {}, "offsets": {"worker-0": -1}}, "offsets.worker-0"),
        ("stacks", {"stacks": {"../x": []}, "silent": {}}, "stacks"),
        ("remove", {"removed": ["../x"], "problems": []}, "removed"),
    ],
)
def test_an_answer_with_a_wrong_shape_is_refused_for_every_command(command, answer, words):
    with pytest.raises(
        BadInput, match="the answer of node1 to the command %s is invalid: .*%s" % (command, words)
    ):
        check(command, answer)


def test_an_answer_of_a_foreign_program_is_dropped():
    """Some of these names have a meaning for Ansible or for the callback."""
    told = {"problems": [], "held": {"ports": {}, "gpus": {}}, "fits": True}
    hostile = {
        "mxcluster_verdict_text": ["OK"],
        "restart": {"extra": {}},
        "lost": {"since": 1.0},
        "add_host": {"host_name": "x"},
    }
    assert check("look", dict(told, **hostile)) == told


ENTRY = {
    "job": "j",
    "state": "ended",
    "why": None,
    "kv": "dist_sync",
    "reason": "done",
    "started": 1.0,
    "ended": 2.0,
    "lease": 60.0,
    "nodes": ["node1", "node2"],
    "ports": {},
    "address": "10.0.0.1",
    "gpus": [],
    "status": None,
    "progress": {},
}


def test_an_invalid_job_does_not_hide_the_others():
    told = check("jobs", {"jobs": [dict(ENTRY, ports=5), ENTRY, dict(ENTRY, job="../x"), 7]})[
        "jobs"
    ]
    assert [(entry["job"], entry["state"]) for entry in told] == [("j", "broken"), ("j", "ended")]
    assert "ports=5" in told[0]["why"]


@pytest.mark.parametrize("told", [[], [ENTRY], [dict(ENTRY, state="prepared")]])
def test_a_job_whose_unit_runs_cannot_be_hidden(told):
    """Otherwise stop.yml would report that the job has ended already."""
    answers = {
        "node1": {"jobs": told, "units": ["j"]},
        "node2": {"jobs": [dict(ENTRY, nodes=["node2"])], "units": []},
    }
    found = listing.merge({host: JobList.decode(one) for host, one in answers.items()})
    assert [job.job for job in found] == ["j"] and found[0].nodes == {
        "node1": "running",
        "node2": "done",
    }
    assert (
        found[0].state == "running"
        and listing.choose(found, "").job == "j"
        and listing.table(found)
    )


def test_a_status_of_a_file_covers_its_own_host_and_job_only(tmp_path):
    plan = fake_run.make_plan()
    # A process of node2.
    other = dict(STATUS["processes"][0], name="worker-2", state="ended", exit_code=0)
    pulse = {"phase": "training", "pushes": 1, "time": 1.0}
    content = dict(
        STATUS,
        job=plan.job,
        host="node2",
        processes=STATUS["processes"] + [other],
        pulses=dict.fromkeys(("worker-0", "worker-2"), pulse),
    )
    (tmp_path / "nodes" / "node1").mkdir(parents=True)

    def read(content):
        (tmp_path / "nodes" / "node1" / "status.json").write_text(json.dumps(content))
        return statuses.read(str(tmp_path), "node1", plan)

    found = read(content)
    assert list(found.pulses) == [part.name for part in found.processes] == ["worker-0"]
    assert found.host == "node1"
    batch = {"launcher": "slurm", "id": "7"}  # the submit host of a batch job names all hosts
    forged = dict(content, batch=batch, first_failure=FAILURE)
    assert read(forged).first_failure.host == "node1"
    for hostile in ([], dict(STATUS, job="other"), dict(content, state="well")):
        with pytest.raises(BadInput, match="status.json is damaged .*: find the program that cha"):
            read(hostile)


CHECK = {
    "mxnet": {"mxnet": "1.9.1", "libmxnet": "a" * 64, "compiled_in": True, "says": ""},
    "files": {
        "hosts": {"sha256": "b" * 64},
        "groups": {"error": "groups: line 2"},
        "data_sharding": {"sha256": "c" * 64},
    },
    "room": {"/opt/mxcluster": 5, "/dev/shm": 6},
    "ssh": {"peers": {"node2": None, "node3": "refused"}},
    "gpus": {
        "listed": [{"uuid": "GPU-8f", "bus": "00000000:3b:00.0"}],
        "driver": "470.256.02",
        "nouveau": False,
        "nvcc": None,
        "cudnn": "7.6.5",
        "unresolved": [],
        "probe": {
            "driver": {
                "version": 11040,
                "gpus": [
                    {"uuid": "GPU-8f", "bus": "0000:3b:00.0", "name": "V", "capability": "7.0"}
                ],
                "peers": [[0, 1]],
            },
            "runtime": {"error": "cudaGetDeviceCount returned 35", "status": 35},
            "cudnn": "7.6.5",
            "nccl": None,
        },
        "trials": {"0": None, "0 -> 1": "refused"},
    },
}


@pytest.mark.parametrize(
    "name, found",
    [
        ("mxnet", {"error": "cannot import MXNet"}),
        ("files", {"error": "no folder"}),
        ("gpus", None),
        ("gpus", dict(CHECK["gpus"], probe={"error": "no answer"})),
    ],
)
def test_a_check_may_report_its_own_failure(name, found):
    told = dict(CHECK, ports_open="no root", speed=None, system=None, seconds={"mxnet": 2.5})
    told.update({name: found})
    assert check("check", {"check": told})["check"] == told


@pytest.mark.parametrize(
    "name, found, words",
    [
        ("mxnet", dict(CHECK["mxnet"], libmxnet="all is well"), "mxnet.libmxnet"),
        ("files", {"hosts": {"sha256": "b" * 64}}, "files"),
        ("room", {"/": "much"}, "room"),
        ("gpus", dict(CHECK["gpus"], trials={"one -> two": "wrong"}), "gpus.trials"),
        ("gpus", dict(CHECK["gpus"], probe={"driver": {}}), "gpus.probe"),
        ("speed", {"matmul": -1, "disk": {"write": 1, "read": 1}}, "speed.matmul"),
        ("speed", {"matmul": 1, "disk": {"write": 1e10, "read": 1}}, "speed.disk.write"),
        ("system", {"distribution": "centos 7"}, "system.distribution"),
        ("seconds", {"mxnet": -1}, "seconds.mxnet"),
    ],
)
def test_an_invalid_check_is_refused(name, found, words):
    """Only the size was checked once, and verify.yml ended with a traceback."""
    with pytest.raises(
        BadInput, match="the answer of node1 to the command check is invalid: check.%s" % words
    ):
        check("check", {"check": dict(CHECK, **{name: found})})


def test_a_rendezvous_report_has_checked_fields():
    report = {
        "host": "node9",
        "met": [{"host": "node2", "rtt": 0.1, "offset": 0.0, "more": 1}],
        "unreachable": [],
        "taken": [],
        "missing": [],
        "limits": {"open_files": 1024, "free": 1, "shm": 1},
    }
    assert RendezvousReport.decode(report).encode() == {
        "met": [{"host": "node2", "rtt": 0.1, "offset": 0.0}],
        "unreachable": [],
        "taken": [],
        "missing": [],
        "limits": {"open_files": 1024},
        "links": [],
    }
    with pytest.raises(Wrong, match="links.0..received='fast'"):
        RendezvousReport.decode(dict(report, links=[{"host": "node2", "received": "fast"}]))
    with pytest.raises(Wrong, match="met.0..rtt='quick'"):
        RendezvousReport.decode(dict(report, met=[{"host": "a", "rtt": "quick", "offset": 0}]))


@pytest.mark.parametrize("value", [deep(50), deep(5000), {"x": float("nan")}])
def test_a_plan_of_too_many_levels_is_refused_by_node(value):
    assert check("plan", {"plan": {"job": "j"}})["plan"] == {"job": "j"}
    with pytest.raises(BadInput, match="the answer of node1 to the command plan is invalid: plan="):
        check("plan", {"plan": value})


HOSTILE_PARTS = {
    "name": [None, 1, True, [], {}, "", "..", "a/b", "../x"],
    "role": [None, 1, True, [], {}],
    "index": NOT_WHOLE,
    "pid": NOT_WHOLE,
    "exit_code": ["0", True, [], 1000, float("nan")],
}


@pytest.mark.parametrize(
    "field, value", [(field, value) for field, values in HOSTILE_PARTS.items() for value in values]
)
def test_a_status_with_a_hostile_process_is_refused(field, value):
    part = dict(STATUS["processes"][0], **{field: value})
    with pytest.raises(BadInput, match="the answer of node1 to the command wait is invalid: "):
        check("wait", WAIT, status=dict(STATUS, processes=[part]))


@pytest.mark.parametrize("seen", [{"age": float("nan")}, {"age": 1, "limit": 10**400}, [1]])
def test_a_forged_lease_is_refused(seen):
    lease = dict({"age": 1.0, "limit": 1.0, "gap": None}, **seen) if seen != [1] else seen
    with pytest.raises(Wrong, match="^lease"):
        Status.decode(dict(STATUS, lease=lease))


def test_the_table_of_failures_is_whole():
    """Each reason of an end has a kind with words, and each kind says why no restart helps."""
    for kind in failures.OF_REASON.values():
        assert failures.KINDS[kind].words and failures.KINDS[kind].gives_way == failures.LOSS
    assert [failures.of_code(code) for code in (91, 92, 97, -9, -15, -11, 3)] == (
        ["peer", "peer", "nan", "killed", "killed", "program", "program"]
    )
    named = failures.of_agent("a", failures.AGENT_HELD)
    assert named.reason.startswith("the agent itself has been stopped") and named.name == "agent"


def test_a_failure_of_another_version_has_a_kind():
    kinds = [({}, "killed"), ({"kind": "of tomorrow"}, "program"), ({"exit_code": None}, "agent")]
    for change, kind in kinds:
        assert failures.Failure.decode(dict(FAILURE, **change)).kind == kind
