"""The decision about an automatic restart."""

import json

import pytest

from mxcluster import exit_codes
from mxcluster.job import restarts
from tests.unit import statuses
from tests.unit.job.report.fake_run import make_plan
from tests.unit.job.report.test_checkpoint_arrivals import save_files
from tests.unit.test_checkpoints import save


def failed(code, reason=None, host="node1", nodes=None, **more):
    failure = dict(
        {
            "host": host,
            "role": "worker",
            "index": 1,
            "name": "worker-1",
            "exit_code": code,
            "log": [],
            "time": 1.0,
            "reason": reason or (exit_codes.describe(code) if code is not None else "?"),
        },
        **more,
    )
    return {
        "ok": False,
        "first_failure": failure,
        "nodes": dict({"node1": "failed", "node2": "failed"}, **nodes or {}),
    }


def plan_of(job="mine", **options):
    plan = make_plan(workers=4)
    known = {"max_restarts": 2, "restart_delay": 10.0, "savemodel": True}
    return plan.replaced(job=job, options=plan.options.replaced(**dict(known, **options)))


def decide(verdict, epoch=5, used=(), job="mine", **options):
    plan, known = plan_of(job, **options), statuses.of_verdict(verdict)
    found = restarts.decide(plan, known, epoch, lambda name: name in used)
    return found and found.encode()


AGAIN = [
    failed(-9),
    failed(-15),
    failed(-1),
    failed(None, "killed", role="agent", name="agent", kind="agent_killed"),
    failed(91),
    failed(
        None,
        "the controller could not collect the status of this node: x",
        host="node2",
        nodes={"node2": "missing"},
    ),
    failed(None, "stopped", kind="stopped"),
    failed(None, "no answer", kind="network"),
    failed(None, "mpirun was killed", kind="engine"),
    failed(None, "Slurm has ended the job 7: NODE_FAIL", role="agent", kind="node"),
    failed(None, "ended: the node was shut down", role="agent", kind="shutdown"),
    failed(None, "ended: mpirun has ended the agent", role="agent", kind="engine_end"),
    failed(None, "node2 is gone", role="agent", kind="lost"),
]
NEVER = [
    failed(1),
    failed(2),
    failed(-11),
    failed(-6),
    failed(-7),
    failed(93),
    failed(94),
    failed(95),
    failed(127),
    failed(0),
    failed(None, "ended: the job was stopped on request", kind="on_request"),
    failed(None, "ended: the lease ran out", kind="lease"),
    failed(None, "did not start: no such file"),
    failed(None, "was still running when the controller collected its logs"),
    failed(None, "the agent failed: No space left on device"),
    failed(None, "Slurm has ended the job 7: CANCELLED", role="agent", kind="batch"),
]
NEVER.append(failed(None, "ended: the job has run for its max_time", role="agent", kind="time"))
NEVER += [
    failed(-9, kind=kind)
    for kind in ("disk", "memory", "stall", "start", "nan", "learning", "of tomorrow")
]


@pytest.mark.parametrize("verdict", AGAIN, ids=lambda verdict: verdict["first_failure"]["reason"])
def test_an_external_failure_is_restarted(verdict):
    decision = decide(verdict)
    assert decision["extra"]["resume"] == "mine" and decision["extra"]["job_id"] == "mine-r1", (
        decision
    )


@pytest.mark.parametrize(
    "verdict",
    NEVER,
    ids=lambda verdict: (
        "%s %s" % (verdict["first_failure"]["reason"], verdict["first_failure"].get("kind"))
    ),
)
def test_a_failure_of_the_job_itself_is_not_restarted(verdict):
    decision = decide(verdict)
    assert decision["extra"] is None and decision["text"].startswith("RESTART   no: "), decision


def test_without_max_restarts_or_failure_there_is_no_decision():
    assert decide(failed(-9), max_restarts=0) is None
    assert decide(dict(failed(-9), ok=True, first_failure=None)) is None


def test_a_restart_leaves_out_a_lost_node():
    decision = decide(
        failed(None, "x", host="node2", nodes={"node2": "missing"}), without=["node7"]
    )
    assert decision["extra"] == {
        "job_id": "mine-r1",
        "max_restarts": 1,
        "restart_delay": 20.0,
        "without": ["node2", "node7"],
        "resume": "mine",
        "model_load_epoch": 0,
        "model_load_job": "",
        "after": "",
    }
    assert (
        decision["text"]
        == "RESTART   job mine-r1, 1 of 2, without node2, node7, from epoch 5, in 10 s"
    )
    assert decision["delay"] == 10


def test_an_elastic_restart_leaves_the_lost_node_to_its_next_attempt():
    """The attempt itself asks all nodes, so it takes a node that has returned."""
    lost = failed(None, "x", host="node2", nodes={"node2": "missing"})
    decision = decide(lost, without=["node7"], elastic=True)
    assert decision["extra"]["without"] == ["node7"]
    assert decision["text"] == (
        "RESTART   job mine-r1, 1 of 2, without node7, with the nodes that answer, from epoch 5, "
        "in 10 s"
    )
    assert "with the nodes that answer" not in decide(lost)["text"]


def test_a_restart_leaves_out_a_node_that_was_lost_after_its_last_status():
    verdict = dict(failed(None, "killed", host="node2", kind="agent_killed"), left={"node1": []})
    assert decide(verdict)["extra"]["without"] == ["node2"]
    assert decide(dict(verdict, left={"node1": [], "node2": []}))["extra"]["without"] == []


@pytest.mark.parametrize("lost", [["node1"], ["node2"], ["node1", "node2"]], ids=" ".join)
def test_a_restart_of_a_batch_job_leaves_out_no_lost_node(lost):
    """The batch system chooses the nodes, also that of the scheduler. mxcluster keeps no host."""
    verdict = failed(None, "x", host="node1", kind="node", nodes=dict.fromkeys(lost, "missing"))
    plan = plan_of(without=["node7"]).replaced(launcher="slurm")
    decision = restarts.decide(plan, statuses.of_verdict(verdict), 5, lambda name: False)
    assert decision.extra and decision.extra.without == ["node7"], decision


def test_the_next_restart_waits_longer_and_counts_on():
    decision = decide(
        failed(-9), job="mine-r1", epoch=None, max_restarts=1, restart_delay=20.0, resume="mine"
    )
    assert decision["text"] == "RESTART   job mine-r2, 2 of 2, from the beginning, in 20 s"
    assert "resume" not in decision["extra"] and decision["extra"]["max_restarts"] == 0


def test_restart_ids_are_unique_and_limited_in_length():
    used = {"mine-r1", "mine-r2"}
    assert restarts.next_id("mine", used.__contains__) == ("mine-r3", 3)
    for other in ("mine-r²", "mine-r٣"):  # digits of other scripts are no number of an attempt
        assert restarts.next_id("mine", {other}.__contains__) == ("mine-r1", 1)
    assert len(restarts.next_id("x" * 100, used.__contains__)[0]) <= 100


@pytest.mark.parametrize(
    "nodes,epoch,words",
    [
        ({"node1": "missing"}, 5, "node1, the only host of the group scheduler, is lost"),
        ({"node1": "missing", "node2": "missing"}, 5, "no node answered at the end of the job"),
        ({}, 20, "the job has trained and saved all 20 epochs"),
    ],
)
def test_a_refused_restart_says_what_to_do(nodes, epoch, words):
    decision = decide(failed(-9, nodes=nodes), epoch=epoch)
    assert decision["extra"] is None and words in decision["text"], decision


def test_the_last_checkpoint_may_be_that_of_the_predecessor(tmp_path):
    for job, options in (("mine", {}), ("mine-r1", {"resume": "mine"})):
        (tmp_path / job / "checkpoints").mkdir(parents=True)
        plan = plan_of(job, **options)
        (tmp_path / job / "plan.json").write_text(json.dumps(plan.encode()))
    save(tmp_path / "mine" / "checkpoints", 7)
    decision = restarts.after(plan, statuses.of_verdict(failed(-9)), str(tmp_path / "mine-r1"))
    assert "from epoch 7" in decision.text and decision.extra.resume == "mine-r1"
    assert (
        restarts.after(plan, statuses.of_verdict({"ok": True}), str(tmp_path / "mine-r1")) is None
    )


def test_the_attempts_share_the_max_time():
    verdict = dict(failed(-9), seconds=3600.0)
    again = decide(verdict, max_time=7200.0, restart_delay=10.0)
    assert again["extra"]["max_time"] == 3590.0
    assert "max_time" not in decide(verdict)["extra"]
    last = decide(verdict, max_time=3615.0, restart_delay=10.0)
    assert "extra" not in last or last["extra"] is None
    words = "RESTART   no: the attempts have used up max_time; %s and a new max_time"
    assert last["text"] == words % "continue with -e resume=mine"
    last = decide(verdict, epoch=None, max_time=3615.0, restart_delay=10.0)
    assert last["text"] == words % "start it again"


def test_a_script_goes_on_from_its_last_checkpoint_whatever_num_epochs_says(tmp_path):
    plan = plan_of(script="/my/train.py", savemodel=False, num_epochs=1)
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "plan.json").write_text(json.dumps(plan.encode()))
    verdict = statuses.of_verdict(failed(-9))
    assert "from the beginning" in restarts.after(plan, verdict, str(tmp_path / "mine")).text
    save_files(tmp_path / "mine" / "checkpoints", "worker-1", 3, step="1")
    decision = restarts.after(plan, verdict, str(tmp_path / "mine"))
    assert "from checkpoint 3" in decision.text and decision.extra.resume == "mine"
