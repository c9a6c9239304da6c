import pytest

from mxcluster.job import restarts, verdict, verdict_text
from mxcluster.model.events import Batch, Done, End
from mxcluster.model.failures import Failure
from mxcluster.model.job_knobs import Options
from mxcluster.model.plan import Heartbeat, MpiProgram, Node
from mxcluster.model.verdict import Verdict
from tests.plans import plan_with, process_of
from tests.unit import statuses as made
from tests.unit.statuses import compute

PLAN = plan_with(
    *(
        process_of(name.split("-")[0], int(name[-1]), host=host)
        for name, host in (
            ("scheduler-0", "node1"),
            ("server-0", "node1"),
            ("worker-0", "node1"),
            ("worker-1", "node2"),
        )
    ),
    job="j1",
    kv="dist_gsync",
    options={"lease": 60.0, "script": ""},
    workers=2,
    servers=1,
    nodes={"node1": {}, "node2": {}},
)
ENDS = [
    End(role="worker", index=index, time=130.0, accuracy=accuracy, samples=1000, seconds=seconds)
    for index, accuracy, seconds in ((0, 0.96, 10.0), (1, 0.95, 12.5))
]
DONE = [Done(role="worker", index=index, time=130.1) for index in (0, 1)]
ENDS += DONE


def statuses(**codes):
    """Return {host: status} of a successful job, except for the exit codes given as worker_1=9."""
    found = {}
    for host in PLAN.nodes:
        processes = [
            {"name": process.name, "exit_code": codes.get(process.name.replace("-", "_"), 0)}
            for process in PLAN.of_host(host)
        ]
        found[host] = {
            "host": host,
            "state": "ended",
            "reason": "done",
            "started": 100.0,
            "ended": 130.0,
            "processes": processes,
            "first_failure": None,
        }
    return found


def failure(name, time, code=3, reason=None, host="node2", log=()):
    return {
        "host": host,
        "role": name.split("-")[0],
        "index": int(name[-1]),
        "name": name,
        "exit_code": code,
        "time": time,
        "reason": reason or "exited with status %d" % code,
        "log": list(log),
    }


def first(found):
    """Return the first failure of a verdict as text."""
    return verdict_text.sentence(Failure.decode(found["first_failure"]))


def test_the_verdict_of_a_successful_job():
    assert compute(PLAN, statuses(), ENDS) == {
        "ok": True,
        "job": "j1",
        "kv": "dist_gsync",
        "accuracy": 0.96,
        "samples_per_s": 160.0,
        "seconds": 12.5,
        "exit_codes": {"scheduler-0": 0, "server-0": 0, "worker-0": 0, "worker-1": 0},
        "first_failure": None,
        "left": {},
        "warnings": [],
        "files": 0,
        "nodes": {"node1": "done", "node2": "done"},
    }


def test_a_worker_that_exits_with_0_before_its_end_event_fails_the_job():
    found = compute(PLAN, statuses(), ENDS[:-1])
    assert not found["ok"]
    assert (found["first_failure"]["name"], found["first_failure"]["host"]) == ("worker-1", "node2")
    assert "before its training was complete" in found["first_failure"]["reason"]


def test_a_script_needs_only_done_events():
    plan = PLAN.replaced(options=Options(script="/home/me/train.py"))
    assert not compute(plan, statuses(), DONE[1:])["ok"]
    found = compute(plan, statuses(), DONE)
    assert (found["ok"], found["accuracy"], found["samples_per_s"], found["seconds"]) == (
        True,
        None,
        None,
        30.0,
    )


def test_the_earliest_failure_of_all_nodes_is_the_first_failure():
    found = statuses(worker_1=3, server_0=1)
    found["node1"]["first_failure"] = failure("server-0", 121.0, 1, host="node1")
    found["node2"]["first_failure"] = failure("worker-1", 120.0)
    assert compute(PLAN, found, [])["first_failure"]["name"] == "worker-1"


def test_an_echo_without_a_cause_suggests_the_network():
    found = statuses(worker_0=91, worker_1=91)
    found["node2"]["first_failure"] = failure(
        "worker-1", 110.0, 91, reason="exited with status 91 (a peer was gone)"
    )
    assert compute(PLAN, found, ENDS)["first_failure"]["reason"] == (
        "exited with status 91 (a peer was gone), and no node reported an earlier failure: check "
        "the network between the nodes"
    )


WIRED = PLAN.replaced(
    processes=[
        process.replaced(address="10.0.0.%s" % process.host[-1], port=9091 + number)
        for number, process in enumerate(PLAN.processes)
    ],
)
NO_ANSWER = "the network between the nodes failed before any process: "


def test_a_node_ended_for_a_peer_was_not_stopped_on_request():
    """The controller ends the other nodes' parts without a request of the user."""
    found = statuses(worker_0=91, worker_1=-15)
    found["node1"].update(
        reason="failed", first_failure=failure("worker-0", 110.0, 91, host="node1")
    )
    found["node2"].update(reason="peer", ended=105.0)
    result = compute(PLAN, found, ENDS)
    assert result["nodes"] == {"node1": "failed", "node2": "peer"}
    assert result["first_failure"]["name"] == "worker-0"
    assert "no node reported an earlier failure" in result["first_failure"]["reason"]
    found["node1"].update(reason="peer", first_failure=None)
    assert "because another node's part" in compute(PLAN, found, ENDS)["first_failure"]["reason"]
    found["node1"].update(reason="stopped", first_failure=None)
    assert "on request" in compute(PLAN, found, ENDS)["first_failure"]["reason"]


def network_failure(host, time):
    return {
        "host": host,
        "role": "agent",
        "index": None,
        "name": "agent",
        "exit_code": None,
        "time": time,
        "log": [],
        "reason": "gets no answer",
        "kind": "network",
    }


@pytest.mark.parametrize(
    "seen",
    [
        {"first_failure": failure("worker-0", 110.0, 91, host="node1")},
        {"first_failure": network_failure("node1", 110.0)},
        {"first_failure": dict(failure("worker-0", 110.0, host="node1"), kind="stall")},
    ],
)
def test_a_failed_network_is_named_with_the_pairs_of_nodes(seen):
    found = statuses(worker_0=91, worker_1=91)
    found["node1"].update(reason="failed", unanswered=["worker-1"], **seen)
    found["node2"].update(
        reason="peer", unanswered=["scheduler-0", "server-0", "worker-1", "worker-9"]
    )
    cause = compute(WIRED, found, ENDS)["first_failure"]
    assert (cause["host"], cause["role"], cause["kind"]) == ("node1", "agent", "network")
    assert cause["reason"] == NO_ANSWER + (
        "node1 gets no answer from node2 (worker-1 at 10.0.0.2:9094), "
        "node2 gets no answer from node1 (scheduler-0 at 10.0.0.1:9091, server-0 at 10.0.0.1:9092)"
    )
    assert compute(WIRED, dict(found, node2=None), [], {}, lost={"node2": GONE})["first_failure"][
        "reason"
    ].startswith("node2 is gone"), "node2 has lost all its networks"


def test_a_failed_process_precedes_a_failed_network():
    """Missing acknowledgements may be a consequence, and the nodes' clocks differ."""
    found = statuses(worker_0=3)
    found["node1"].update(first_failure=failure("worker-0", 110.0, host="node1"))
    found["node2"].update(first_failure=network_failure("node2", 109.5), unanswered=["server-0"])
    assert compute(WIRED, found, ENDS)["first_failure"]["name"] == "worker-0"


def test_a_worker_that_exited_early_with_0_is_the_cause_of_echoes():
    found = statuses(worker_0=91, worker_1=0)
    next(part for part in found["node2"]["processes"] if part["name"] == "worker-1")["ended_by"] = (
        "self"
    )
    found["node1"]["first_failure"] = failure("worker-0", 110.0, 91, host="node1")
    result = compute(PLAN, found, [event for event in ENDS if event.index != 1])
    assert (result["first_failure"]["name"], result["first_failure"]["reason"]) == (
        "worker-1",
        verdict.NOT_DONE,
    )


def test_a_lost_node_precedes_an_echo():
    found = statuses(worker_0=91)
    found["node1"]["first_failure"] = failure("worker-0", 110.0, 91, host="node1")
    found["node2"] = None
    result = compute(PLAN, found, [], {"node2": "no route to host"})
    assert result["nodes"] == {"node1": "done", "node2": "missing"}
    assert result["exit_codes"]["worker-1"] is None
    assert first(result) == (
        "agent on node2: the controller could not collect the status of this node: no route to host"
    )


@pytest.mark.parametrize(
    "reason, words",
    [
        ("lease", "the lease ran out"),
        ("stopped", "stopped on request"),
        ("engine", "mpirun, which started the agent, has ended the agent, and no part of"),
    ],
)
def test_a_job_ended_by_its_agent_is_a_failure(reason, words):
    found = statuses(worker_1=-15)
    found["node1"]["first_failure"] = failure("worker-0", 110.0, 91, host="node1")
    found["node2"]["reason"] = reason
    result = compute(PLAN, found, [])
    assert not result["ok"]
    assert (
        words in result["first_failure"]["reason"] and result["first_failure"]["host"] == "node2"
    ), result


@pytest.mark.parametrize(
    "seen, words",
    [
        (
            {"age": 30.4, "limit": 30, "gap": 12.6},
            "the last renewal was 30 s ago, and at most 30 s are allowed; earlier renewals were up "
            "to 13 s apart: check whether train.yml",
        ),
        (
            None,
            "the lease ran out, the node received no renewal: check whether train.yml was",
        ),
    ],
)
def test_an_expired_lease_is_shown_with_its_measured_times(seen, words):
    found = statuses(worker_1=-15)
    found["node2"].update(reason="lease", lease=seen)
    assert words in compute(PLAN, found, [])["first_failure"]["reason"]


def test_an_exit_code_without_a_first_failure_is_shown_with_its_signal():
    result = compute(PLAN, statuses(worker_0=-11), ENDS)
    assert first(result) == "worker 0 on node1: killed by signal 11 (SIGSEGV)"


def test_the_last_lines_of_a_success():
    assert verdict_text.text(Verdict.decode(compute(PLAN, statuses(), ENDS)), "runs/j1") == [
        "OK        job j1 (dist_gsync): all 4 processes exited with 0",
        "accuracy  0.9600 on held-out samples (worker-0)",
        "time      0:13",
        "speed     160 samples/s",
        "report    runs/j1/report.html",
    ]


def test_a_job_that_was_stopped_says_so():
    found = statuses(worker_1=-15)
    found["node1"]["first_failure"] = failure("worker-0", 110.0, 91, host="node1")
    found["node2"]["reason"] = "stopped"
    lines = verdict_text.text(Verdict.decode(compute(PLAN, found, [])), "runs/j1")
    assert lines[0] == "STOPPED   job j1 (dist_gsync) after 0:30: the job was stopped on request"
    assert not any(line.startswith("first") for line in lines), "no node is the cause"


def test_the_end_of_the_time_is_the_cause_of_what_follows():
    """Each agent ends the job by its own clock, so peers may fail before their agents end them."""
    found = statuses(worker_1=-15)
    found["node1"]["first_failure"] = failure("worker-0", 110.2, 1, host="node1")
    words = "ended: the job has run for its max_time of 10 s"
    cause = dict(failure("worker-1", 110.0, reason=words), kind="time", role="agent", name="agent")
    found["node2"]["first_failure"] = dict(cause, log=["a line of the agent"])
    result = compute(PLAN, found, [])
    assert not result["ok"] and result["first_failure"]["kind"] == "time"
    lines = verdict_text.text(Verdict.decode(result), "runs/j1")
    assert lines[0] == "TIME      job j1 (dist_gsync) after 0:30"
    assert lines[1] == "first     " + words
    assert not any("a line of the agent" in line for line in lines)
    assert lines[2] == "next      the job has no checkpoint: start it again with a larger max_time"


@pytest.mark.parametrize("kind", ["time", "on_request", "program"])
def test_a_job_that_was_ended_names_the_way_on(kind):
    found = statuses(worker_1=-15)
    found["node2"]["first_failure"] = dict(failure("worker-1", 110.0, 1), kind=kind)
    saved = Verdict.decode(compute(PLAN, found, [])).replaced(
        checkpoint="mlp-0007", best_checkpoint="mlp-0003"
    )
    lines = verdict_text.text(saved, "runs/j1")
    on = "next      train.yml -e resume=j1, from the checkpoint mlp-0007"
    assert (on in lines) == (kind != "program"), "the error of a program would come again"
    assert "best      the checkpoint mlp-0003, by its accuracy" in lines


@pytest.mark.parametrize("script", ["", "/home/me/train.py"])
def test_a_job_must_reach_its_expected_accuracy(script):
    options = Options(script=script, expect_accuracy=0.96)
    plan = PLAN.replaced(options=options)
    assert compute(plan, statuses(), ENDS)["ok"]
    found = compute(plan.replaced(options=options.replaced(expect_accuracy=0.97)), statuses(), ENDS)
    assert not found["ok"] and found["first_failure"]["kind"] == "learning"
    assert first(found).endswith(
        "the accuracy of 0.96 on held-out samples is below expect_accuracy=0.97: train for more "
        "epochs or with another lr, or lower expect_accuracy"
    )


def test_an_expected_accuracy_needs_an_accuracy():
    plan = PLAN.replaced(options=Options(script="/home/me/train.py", expect_accuracy=0.5))
    found = compute(plan, statuses(), DONE)
    assert not found["ok"] and "the job reported no accuracy" in first(found)
    assert "give the knob metrics" in first(found)
    nan = [End(role="worker", index=0, time=130.0, accuracy=float("nan"), samples=1, seconds=1.0)]
    assert not compute(plan, statuses(), nan + DONE)["ok"]


def test_the_last_lines_of_a_failure():
    found = statuses(worker_1=1)
    found["node2"]["first_failure"] = failure(
        "worker-1",
        120.0,
        1,
        log=[
            "Traceback (most recent call last):",
            "\x1b[31mModuleNotFoundError: No module named 'gluoncv'\x1b[0m\x07",
        ],
    )
    assert verdict_text.text(Verdict.decode(compute(PLAN, found, [])), "runs/j1") == [
        "FAILED    job j1 (dist_gsync) after 0:30",
        "first     worker 1 on node2: exited with status 1",
        "  node2/worker-1 | Traceback (most recent call last):",
        "  node2/worker-1 | ModuleNotFoundError: No module named 'gluoncv'",
        "hint      a Python module is missing on the nodes: put a module of your own beside the "
        "script. For any other module, name its package in a file for -e requirements=FILE.",
        "not searched: node1, node2",
        "logs      runs/j1/nodes",
        "report    runs/j1/report.html",
    ]


@pytest.mark.parametrize(
    "message, words",
    [
        ("Check failed: my_node_.port != -1 (-1 vs. -1) bind failed", "-e root_port="),
        ("cudaMalloc failed: out of memory", "batch_size"),
    ],
)
def test_a_known_message_gets_a_hint(message, words):
    (hint,) = verdict_text.hints(made.failure(failure("worker-1", 1.0, log=["x", message, "y"])))
    assert words in hint


@pytest.mark.parametrize("seconds, expected", [(59.6, "1:00"), (751, "12:31"), (3723, "1:02:03")])
def test_clock(seconds, expected):
    assert verdict_text.clock(seconds) == expected


@pytest.mark.parametrize("number, expected", [(1843.4, "1843"), (9.87, "9.9"), (0.123, "0.12")])
def test_figure(number, expected):
    assert verdict_text.figure(number) == expected


GONE = {"since": 100.0, "why": "No route to host"}
HEARTBEAT = PLAN.replaced(heartbeat=Heartbeat(timeout=5))


def missed(**more):
    """Return statuses of a job without node2; node1 ended after missing node2's heartbeats."""
    echo = failure(
        "scheduler-0", 125.0, 91, host="node1", reason="another process of the job was gone"
    )
    return {
        "node1": dict(
            statuses(scheduler_0=91)["node1"], reason="failed", first_failure=echo, **more
        ),
        "node2": None,
    }


def test_a_lost_node_is_the_cause():
    cause = compute(HEARTBEAT, missed(), [], {"node2": "no archive"}, lost={"node2": GONE})[
        "first_failure"
    ]
    assert (cause["host"], cause["role"], cause["time"]) == ("node2", "agent", 100.0)
    assert cause["reason"].startswith("node2 is gone: it has not answered over ssh since ")
    assert cause["reason"].endswith(
        "(No route to host), and the other nodes have received no heartbeat of its worker-1 for 5 s"
    )


def test_a_node_that_went_down_in_order_is_the_cause_and_the_job_starts_again():
    found = statuses(worker_0=91, worker_1=-15)
    echo = failure("worker-0", 110.0, 91, host="node1")
    found["node1"].update(first_failure=echo, reason="failed")
    found["node2"].update(reason="shutdown", first_failure=None)
    message = compute(HEARTBEAT, found, [], {}, lost={"node2": GONE})["first_failure"]["reason"]
    assert (
        message.startswith("node2 is gone: ") and "its agent got SIGTERM before, as when" in message
    )
    answers = compute(HEARTBEAT, found, [], left={"node1": [], "node2": []})
    plan = HEARTBEAT.replaced(options=HEARTBEAT.options.replaced(max_restarts=1))
    decision = restarts.decide(plan, Verdict.decode(answers), None, lambda _: False)
    assert decision.extra.without == ["node2"], decision


@pytest.mark.parametrize("reason", ["stopped", "lease", "engine", "shutdown"])
def test_a_node_ended_after_the_loss_of_another_is_not_the_cause(reason):
    """The controller stops the other nodes when it has lost one."""
    found = {"node1": dict(statuses(worker_0=-15)["node1"], reason=reason), "node2": None}
    cause = compute(HEARTBEAT, found, [], {}, lost={"node2": GONE})["first_failure"]
    assert cause["host"] == "node2" and "heard of" not in cause["reason"]


def test_a_failed_process_precedes_a_lost_node():
    found = {
        "node1": dict(
            statuses(worker_0=3)["node1"],
            reason="failed",
            first_failure=failure("worker-0", 99.0, host="node1"),
        ),
        "node2": None,
    }
    assert compute(PLAN, found, [], {}, lost={"node2": GONE})["first_failure"]["name"] == "worker-0"


@pytest.mark.parametrize("cause", [None, "shutdown", "echo"])
def test_an_untrue_answer_is_the_cause_of_later_failures(cause):
    """Root ended the unit, so the agent wrote "shutdown", and the peers miss its processes."""
    found = statuses(worker_1=None)
    if cause == "shutdown":
        found["node2"]["reason"] = "shutdown"
    if cause == "echo":
        found["node1"]["first_failure"] = failure("worker-0", 120.0, 91, host="node1")
    message = compute(
        PLAN, found, ENDS, untrue={"node2": "the node answered that its part of the job had ended"}
    )
    assert not message["ok"]
    assert first(message) == "agent on node2: the node answered that its part of the job had ended"
    found["node1"]["first_failure"] = failure("server-0", 110.0, 1, host="node1")
    assert compute(PLAN, found, ENDS, untrue={"node2": "x"})["first_failure"]["name"] == "server-0"


def test_leftover_processes_fail_a_finished_job():
    port = "port 9092 is still listened on by pid 123 (python)"
    found = compute(PLAN, statuses(), ENDS, left={"node1": [], "node2": [port]})
    assert not found["ok"] and found["left"] == {"node1": [], "node2": [port]}
    assert found["first_failure"]["host"] == "node2" and port in found["first_failure"]["reason"]
    assert "left      node2: " + port in verdict_text.text(Verdict.decode(found), "runs/j1")


def test_a_failed_job_shows_that_nothing_is_left_and_which_nodes_were_not_checked():
    found = compute(HEARTBEAT, missed(), [], {}, lost={"node2": GONE}, left={"node1": []})
    lines = verdict_text.text(Verdict.decode(found), "runs/j1")
    assert "left      nothing: no process, port, unit or firewall rule on 1 node" in lines
    assert "not searched: node2" in lines
    none = verdict_text.text(Verdict.decode(dict(found, left={}, seconds=0.0)), "runs/j1")
    assert "not searched: node1, node2" in none and none[0] == "FAILED    job j1 (dist_gsync)"
    assert not [line for line in none if line.startswith("left")]


def test_warnings_and_a_scripts_files_are_shown_at_the_end():
    found = compute(
        PLAN, statuses(), ENDS, warnings=["node1: worker-0: 1 file stays\x1b[31m"], files=6
    )
    message = verdict_text.text(Verdict.decode(found), "runs/j1")
    assert found["ok"] and message[-3:-1] == [
        "warning   node1: worker-0: 1 file stays",
        "files     6 files of the program, in runs/j1/nodes/*/files",
    ]


def test_events_of_a_hostile_mpi_program_are_no_losses():
    """An MPI job has no worker that a verdict on the learning could name."""
    program = MpiProgram(
        command="./solve", runtime="", pre_execution="", coordination="", network="", hosts=[]
    )
    first = process_of("mpirun", name="mpirun").replaced(index=None)
    plan = PLAN.replaced(kv="mpi", mpi=program, processes=[first], nodes={"node1": Node()})
    found = {"node1": dict(statuses()["node1"], processes=[{"name": "mpirun", "exit_code": 0}])}
    events = [Batch(time=1.0 + epoch, epoch=epoch, loss=1.0) for epoch in range(3)]
    assert compute(plan, found, events)["ok"]
