"""The list of a cluster's jobs, from the answers of its nodes."""

import json
import re

import pytest

from mxcluster.errors import BadInput
from mxcluster.job import job_messages, listing
from mxcluster.model.answers import DiskUse, JobList, Stacks
from mxcluster.model.answers import Stopped as StopAnswer
from mxcluster.model.listing import Held
from mxcluster.model.plan import Node

PATHS = {host: listing.Paths("/env/python", "/jobs/" + host) for host in ("a", "b")}
PROCESS = {
    "name": "worker-0",
    "role": "worker",
    "index": 0,
    "host": "a",
    "address": "10.0.0.1",
    "port": 9091,
    "gpus": [],
    "group": 0,
    "share": [0, 1],
}


def entry(job, state="running", host="a", reason=None, **more):
    """Return one node's part of a job."""
    status = {
        "job": job,
        "host": host,
        "kv": "dist_sync",
        "state": state,
        "reason": reason,
        "started": 1000.0,
        "ended": None if state == "running" else 1100.0,
        "first_failure": None,
        "agent": {"pid": 1, "start_time": 1},
        "processes": [],
    }
    status.update(more.pop("status", {}))
    return dict(
        {
            "job": job,
            "state": state,
            "kv": "dist_sync",
            "reason": reason,
            "started": 1000.0,
            "ended": status["ended"],
            "lease": 60.0,
            "nodes": ["a", "b"],
            "ports": {"9091": "scheduler-0"},
            "gpus": [0],
            "status": status,
        },
        **more,
    )


def answers(*of_a, b=()):
    return {
        "a": JobList.decode({"jobs": list(of_a)}),
        "b": None if b is None else JobList.decode({"jobs": list(b)}),
    }


def states(*given, **more):
    return {
        job.job: (job.state, job.nodes)
        for job in listing.merge(answers(*given, **more), now=1060.0)
    }


def plan(**changes):
    return dict(
        {
            "schema": 1,
            "job": "one",
            "kv": "dist_sync",
            "nodes": {"a": {"python": "/evil", "job_dir": "/etc"}},
            "processes": [PROCESS],
            "options": {"lease": 60},
        },
        **changes,
    )


def test_the_state_of_a_job_follows_from_its_nodes():
    done = [entry("one", "ended", reason="done")]
    assert states(*done, b=[entry("one", "ended", "b", "done")]) == {
        "one": ("done", {"a": "done", "b": "done"})
    }
    assert states(*done, b=[entry("one", host="b")])["one"] == (
        "running",
        {"a": "done", "b": "running"},
    )
    assert states(*done, b=[entry("one", "ended", "b", "failed")])["one"][0] == "failed"
    assert states(*done, b=[])["one"] == ("incomplete", {"a": "done", "b": "missing"})
    assert states(*done, b=None)["one"] == ("done", {"a": "done", "b": "not asked"})
    assert states(entry("one", "ended", reason="lease"), b=None)["one"][0] == "lease"
    assert states(entry("one", "ended", reason="peer"), b=None)["one"] == (
        "failed",
        {"a": "peer", "b": "not asked"},
    )


def test_the_list_shows_ports_gpus_and_progress():
    found = listing.merge(answers(entry("one", lease=0)), now=1060.0)[0]
    assert found.holds == {"a": Held(ports={"9091": "scheduler-0"}, gpus=[0])} and found.detached
    assert "running 1:00" in found.progress
    text = listing.table([found], now=1060.0)
    assert " ".join(text[0].split()) == "job state started kv nodes ports GPUs"
    assert " ".join(text[1].split()) == "one running, detached 1:00 ago dist_sync 2 9091 a:0"
    assert "missing: b" in text[-1]
    assert listing.table([]) == ["no job has run on these nodes"]
    assert json.loads(job_messages.as_json([found], ["c"], {}, {}))["not_asked"] == ["c"]


def cells(*given, **more):
    """Return the (headings, first row) of the table of these jobs, as lists of cells."""
    text = listing.table(listing.merge(answers(*given, **more), now=1060.0), now=1060.0)
    return [re.split(r"  +", line.strip()) for line in text[:2]]


def test_a_running_job_shows_what_it_uses_on_all_nodes():
    def of(**figures):
        return {"usage": dict(figures, event="usage", time=1.0)}

    first = entry(
        "one",
        progress={
            "worker-0": of(cpu=1.25, memory=2 * 10**9, gpu_memory=3 << 30),
            "server-0": of(cpu=0.5),
        },
        usage={"time": 1.0, "received": 2e6, "gpus": {"0": 0.5, "1": 0.7}},
    )
    second = entry("one", host="b", progress={"worker-1": of(cpu=1.0)}, usage={"time": 1.0})
    headings, row = cells(first, b=[second])
    assert headings[-5:] == ["CPU", "memory", "received", "GPU use", "GPU memory"]
    assert row[-5:] == ["2.8 cores", "2.0 GB", "2.0 MB/s", "60 %", "3.2 GB"]
    # A job without figures has dashes beside a job with figures.
    ended = entry("two", "ended", reason="done")
    text = listing.table(listing.merge(answers(first, ended), now=1060.0), now=1060.0)
    assert [line.split()[-5:] for line in text if line.startswith("two")] == [["-"] * 5]


def test_a_figure_that_the_kernel_does_not_tell_is_not_measured():
    known = entry("one", gpus=[], usage={"time": 1.0, "own": 0.01})
    headings, row = cells(known, b=None)
    assert headings[-3:] == ["CPU", "memory", "received"], "the job has no GPU"
    assert row[-3:] == ["not measured"] * 3
    headings, row = cells(entry("one"), b=None)
    assert headings[-1] == "GPUs", "no meter has a figure yet"


def ticket(job, since, **more):
    return dict({"job": job, "since": since, "lease": 90.0}, **more)


def test_waiting_jobs_come_in_the_order_of_their_queue_with_their_reasons():
    lists = {
        host: JobList.decode(
            {
                "jobs": [entry("runs", host=host)],
                "waiting": [
                    ticket("runs", 900.0),  # about to be removed by the agent
                    ticket("first", 1000.0, reasons=["%s: GPU 0 is in use by \x1b[2Jx" % host]),
                    ticket("second", 1010.0, after="runs"),
                ],
            }
        )
        for host in "ab"
    }
    jobs = listing.merge(lists, now=1060.0)
    assert [(job.job, job.state) for job in jobs] == [
        ("runs", "running"),
        ("first", "waiting"),
        ("second", "waiting"),
    ]
    assert jobs[1].encode()["waits"] == {
        "since": 1000.0,
        "after": "",
        "reasons": ["a: GPU 0 is in use by x", "b: GPU 0 is in use by x"],
    }
    text = "\n".join(listing.table(jobs, now=1060.0))
    reasons = "a: GPU 0 is in use by x; b: GPU 0 is in use by x"
    assert "    began to wait for room 1:00 ago: " + reasons in text, text
    assert "    began to wait for the end of the job runs 0:50 ago" in text, text
    with pytest.raises(BadInput, match="the job second waits.*Ctrl-C in its train.yml"):
        listing.choose(jobs, "second")
    assert listing.choose(jobs, "").job == "runs"
    assert [job.job for job in listing.choose_to_stop(jobs, "", True)] == ["runs"]


def test_a_failure_is_shown_without_control_characters():
    place = {"host": "a", "role": "worker", "index": 1, "name": "worker-1"}
    failure = dict(place, reason="killed \x1b[31mred", time=1.0, log=[], exit_code=1)
    found = listing.merge(
        answers(entry("one", "ended", reason="failed", status={"first_failure": failure}))
    )
    assert "worker 1 on a: killed red" in "\n".join(listing.table(found))


def test_the_only_running_job_is_chosen_and_several_are_refused():
    one, two, old = entry("one"), entry("two"), entry("old", "ended", reason="done")
    assert listing.choose(listing.merge(answers(one, old)), "").job == "one"
    assert listing.choose(listing.merge(answers(one, two)), "two").job == "two"
    assert listing.choose(listing.merge(answers(old)), "") is None
    with pytest.raises(
        BadInput, match="2 jobs are running or prepared: name a job with -e job="
    ) as refusal:
        listing.choose(listing.merge(answers(one, two, old)), "")
    assert (
        "one" in str(refusal.value)
        and "two" in str(refusal.value)
        and "old" not in str(refusal.value)
    )
    with pytest.raises(
        BadInput, match="job='onne' is on no node of the inventory .did you mean 'one'"
    ):
        listing.choose(listing.merge(answers(one)), "onne")
    # A node that does not answer may have the job.
    with pytest.raises(BadInput, match=r"on no node that answered \(no answer from node2\)"):
        listing.choose([], "two", ["node2"])


def test_a_job_is_stopped_only_by_name_or_all():
    one, two, old = entry("one"), entry("two"), entry("old", "ended", reason="done")
    found = listing.merge(answers(one, two, old))
    assert [job.job for job in listing.choose_to_stop(found, "one", False)] == ["one"]
    assert {job.job for job in listing.choose_to_stop(found, "", True)} == {"one", "two"}
    assert listing.choose_to_stop(listing.merge(answers(old)), "", True) == []
    with pytest.raises(
        BadInput, match="give -e job=<id>, or -e all=true.*running and prepared jobs(.|\n)*\none"
    ) as refusal:
        listing.choose_to_stop(listing.merge(answers(one, old)), "", False)
    assert "old" not in str(refusal.value)
    with pytest.raises(
        BadInput, match="no job is running or prepared on the nodes: list the ended jobs with"
    ):
        listing.choose_to_stop(listing.merge(answers(old)), "", False)
    with pytest.raises(
        BadInput, match="job='one' and all=true are both set: give either -e job=<id> or -e all="
    ):
        listing.choose_to_stop(found, "one", True)
    with pytest.raises(BadInput, match="job='nope' is on no node of the inventory"):
        listing.choose_to_stop(found, "nope", False)


def test_a_node_stops_only_its_own_jobs():
    found = listing.merge(answers(entry("one"), b=[entry("two", host="b")]))
    assert listing.parts(found) == {"a": ["one"], "b": ["two"]}


def test_paths_of_an_adopted_plan_come_from_this_inventory():
    adopted = listing.adopt(plan(), "one", PATHS)
    assert adopted.nodes == {"a": Node(python="/env/python", job_dir="/jobs/a/one")}


def test_nodes_with_different_plans_of_a_job_are_named():
    """The training user can change a node's copy of the plan."""
    assert listing.agreed({"b": plan(), "a": plan()}, "one") == plan()
    with pytest.raises(
        BadInput,
        match="different plans of the job one: one plan is on a, c, another plan on b. .*"
        "-e without=b, or end the job",
    ):
        listing.agreed({"a": plan(), "b": plan(kv="dist_async"), "c": plan()}, "one")
    with pytest.raises(BadInput, match="no node returns the plan of the job one"):
        listing.agreed({}, "one")


def test_a_plan_is_adopted_although_a_node_does_not_answer():
    forged = plan(nodes={"a": {}, "b": {"python": "/tmp/forged", "job_dir": "/etc"}})
    adopted = listing.adopt(forged, "one", dict(PATHS, b=None))
    assert adopted.nodes == {"a": Node(python="/env/python", job_dir="/jobs/a/one"), "b": Node()}


def test_a_plan_of_another_job_or_with_an_unknown_host_is_refused():
    with pytest.raises(BadInput, match="is invalid"):
        listing.adopt(plan(job="two"), "one", PATHS)
    with pytest.raises(BadInput, match="has a part on z, which this inventory lacks"):
        listing.adopt(plan(nodes={"a": {}, "z": {}}), "one", PATHS)


def deep(levels):
    """Return a list in a list and so on, of so many levels."""
    value = []
    for _ in range(levels):
        value = [value]
    return value


NO_TEXT = [None, 1, ["worker"]]
NO_NUMBER = ["1", True, -1, float("nan")]
NO_LIST = ["auto", {"0": 1}]
HOSTILE = {
    "name": NO_TEXT + ["", "..", "../worker-0", "worker-1"],
    "role": NO_TEXT + ["", "root", "agent"],
    "index": NO_NUMBER + [None, 1],
    "host": NO_TEXT + ["", "a/b", "elsewhere"],
    "address": NO_TEXT + ["", "10.0.0.1\n", "0.0.0.0", "::1"],
    "port": NO_NUMBER + [0, 65536, 10**400],
    "gpus": NO_LIST + [None, ["0"], [True], [-1], [float("nan")]],
    "group": NO_NUMBER + [1],
    "share": NO_LIST + [[0], [0, 1, 2], ["0", "1"], [0, 2], [0, float("nan")]],
    "work_load": NO_LIST + [None, [0], [float("inf")]],
}


@pytest.mark.parametrize(
    "field, value", [(field, value) for field, values in HOSTILE.items() for value in values]
)
def test_a_plan_with_a_hostile_process_is_refused(field, value):
    with pytest.raises(BadInput, match="^the plan of the job one on its nodes is invalid: "):
        listing.adopt(plan(processes=[dict(PROCESS, **{field: value})]), "one", PATHS)


PLAN = {
    "schema": [True, "1", None],
    "kv": NO_TEXT + ["dist_best"],
    "nodes": NO_LIST + [{"../x": {}, "a": {}}, {"a": 1}],
    "processes": NO_LIST + [[], [PROCESS, PROCESS], [None]],
    "workers": NO_NUMBER,
    "groups": NO_LIST + [["0"], [[1]], [[0], [0]], [[0], []]],
    "group_labels": NO_LIST + [[1]],
    "together": NO_LIST + [[[1]], [[]]],
    "slowdowns": NO_LIST + [[float("nan")], ["1"]],
    "changes": NO_LIST + [[1], [{"factors": ["1"]}], [{"every": float("inf")}]],
    "balance": [[48], {"sizes": [0]}, {"sizes": [1, 1]}],
    "heartbeat": ["1", {"timeout": float("inf")}],
    "timeouts": [{"stall": True}],
    "profile": [{"fits": 1}, {"uses": "groups"}],
    "mpi": ["mpirun"],
}


@pytest.mark.parametrize(
    "field, value", [(field, value) for field, values in PLAN.items() for value in values]
)
def test_a_plan_with_a_hostile_field_is_refused(field, value):
    with pytest.raises(BadInput, match="^the plan of the job one on its nodes is invalid: "):
        listing.adopt(plan(**{field: value}), "one", PATHS)


OPTIONS = {
    "lease": [True, -1, [], float("nan"), float("inf")],
    "batch_size": [True, 1.5, 0, "many"],
    "network": [[], {}],
    "resume": ["../x", "a/b"],
    "without": [[1], {}],
    "env": [deep(20), {"A": []}, "[" * 100000],
}


@pytest.mark.parametrize(
    "name, value", [(name, value) for name, values in OPTIONS.items() for value in values]
)
def test_a_plan_with_a_hostile_option_is_refused(name, value):
    with pytest.raises(BadInput, match="^the plan of the job one on its nodes is invalid: "):
        listing.adopt(plan(options=dict({"lease": 60}, **{name: value})), "one", PATHS)


def test_two_fields_of_a_plan_must_agree():
    two = [PROCESS, dict(PROCESS, name="worker-1", index=1)]
    grouped = dict(processes=two, groups=[[0, 1]], group_labels=["x"], together=[[0, 1]])
    profile = {"fits": True, "uses": ["groups"], "noise": 0.1, "speeds": [1.0, 2.0], "job": "x"}
    whole = dict(grouped, balance={"sizes": [1, 2]}, profile=profile)
    assert listing.adopt(plan(**whole), "one", PATHS).groups == [[0, 1]]
    for changes in (
        {"groups": [[0]]},
        {"balance": {"sizes": [1]}},
        {"together": [[0], [1]]},
        {"profile": dict(profile, speeds=[1.0])},
        {"profile": dict(profile, speeds=[1.0, 0])},
        {"processes": [two[0], dict(two[1], group=None)]},
        {"processes": [two[0], dict(two[1], index=2, name="worker-2")]},
    ):
        with pytest.raises(BadInput, match="the plan of the job one on its nodes is invalid: "):
            listing.adopt(plan(**dict(whole, **changes)), "one", PATHS)


@pytest.mark.parametrize("value", [None, [], "plan", 1, {}, deep(5000), {"job": deep(5000)}])
def test_a_plan_of_another_type_is_refused(value):
    with pytest.raises(BadInput, match="the plan of the job one on its nodes is invalid: "):
        listing.adopt(value, "one", PATHS)


def test_the_result_of_a_stop_is_shown():
    job = listing.merge(answers(entry("one"), b=[entry("one", host="b")]))[0]
    ended = StopAnswer(ran=True)
    assert job_messages.of_stop(job, {"a": ended, "b": ended}, False) == (
        [
            "OK        the job one has been ended on a b",
            "left      nothing: no process, port, unit or firewall rule on 2 nodes",
        ],
        True,
    )
    half = job_messages.of_stop(job, {"a": ended, "b": None}, False)
    assert not half.ok and "not searched: b" in half.lines
    more = ended.replaced(left=["pid 7 (python) still runs"])
    left = job_messages.of_stop(job, {"a": ended, "b": more}, False)
    assert not left.ok and "left      b: pid 7 (python) still runs" in left.lines
    assert job_messages.of_stops([], {}, False) == (
        ["OK        no job runs on these nodes"],
        True,
    )
    both = job_messages.of_stops(
        [job, job.replaced(job="two")],
        {"one": {"a": ended, "b": ended}, "two": {"a": ended}},
        False,
    )
    assert not both.ok and both.lines[0] == "OK        the job one has been ended on a b"
    assert "FAILED    the job two has been ended on a" in both.lines
    assert "would be ended on a b" in job_messages.of_stop(job, {}, True).lines[0]


def test_a_job_without_checkpoints_cannot_be_saved():
    (plain,) = listing.merge(answers(entry("one")))
    with pytest.raises(BadInput, match="the job one, which has saved no checkpoint: .* leave"):
        listing.savers([plain])
    (lost,) = listing.merge(answers(entry("one", saves=True)))
    with pytest.raises(BadInput, match="the node of its worker 0 does not answer"):
        listing.savers([lost])
    (saving,) = listing.merge(
        answers(
            entry("one", saves=True),
            b=[entry("one", host="b", saves=True, completes=True)],
        )
    )
    assert listing.savers([saving]) == {"b": ["one"]}
    assert listing.savers([saving.replaced(state="done")]) == {}, "nothing is left to save"


@pytest.mark.parametrize(
    "save, words",
    [
        (
            job_messages.Save("mlp-0003", "mlp-0004", False),
            ["saved     the checkpoint mlp-0004", "-e resume=one"],
        ),
        (
            job_messages.Save("worker-0-0003", "worker-0-0003", False),
            ["lost      the training after the checkpoint worker-0-0003", "-e resume=one"],
        ),
        (job_messages.Save("", "", False), ["lost      all training of the job, because"]),
        (
            job_messages.Save("", "", False, False),
            ["lost      perhaps the training after the last checkpoint", "resume=one"],
        ),
        (
            job_messages.Save("mlp-0003", "mlp-0003", True),
            ["saved     nothing more: the job had ended", "resume=one"],
        ),
    ],
)
def test_a_stop_says_what_was_saved_and_what_was_lost(save, words):
    job = listing.merge(answers(entry("one", lease=60)))[0]
    ended = {"one": {"a": StopAnswer(ran=True)}}
    lines = job_messages.of_stops([job], ended, False, {"one": save}).lines[2:]
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines)), lines
    detached = job_messages.of_save(job.replaced(detached=True), save)
    assert len(detached) == len(words)
    assert len(words) == 1 or "train.yml -e attach=one, which fetches" in detached[1]


def test_logs_are_shown_by_node_and_process():
    with pytest.raises(BadInput, match="-e job="):
        job_messages.of_logs("", {"a": None})
    assert job_messages.of_logs(
        "one", {"b": {"worker-1": ["x\x1b[0m"]}, "a": {"agent": []}, "c": None}
    ) == ["LOGS      of the job one", "  a/agent | (nothing)", "  b/worker-1 | x"]


def test_the_end_of_a_followed_job_names_lost_nodes():
    lines = job_messages.of_followed("one", ["b", "a"], ["b"])
    assert "ENDED     the job one" in lines[0] and "train.yml -e attach=one" in lines[0]
    assert lines[1:] == ["no answer from a: its last lines may be missing"]


def test_stack_traces_are_shown_by_node_and_process():
    answer = Stacks(stacks={"worker-0": ["Thread 0x1\x1b[0m"]}, silent={"server-0": "it loads"})
    assert job_messages.of_stacks("one", {"a": answer}) == [
        "STACKS    of the job one",
        "  a/server-0 | no stack trace: it loads",
        "  a/worker-0 | Thread 0x1",
    ]
    assert "no node has a running process" in job_messages.of_stacks("one", {})[1]


def test_stack_traces_need_a_running_job():
    [job] = listing.merge(answers(entry("one")))
    assert listing.running(job) is job
    with pytest.raises(BadInput, match="does not run .stopped.: name a running job"):
        listing.running(job.replaced(state="stopped"))
    with pytest.raises(BadInput, match="no job runs on these nodes"):
        listing.running(None)


def test_a_name_of_no_process_is_refused():
    part = {"name": "worker-0", "role": "worker", "index": 0}
    known = answers(entry("one", status={"processes": [part]}))
    listing.refuse_strangers("one", known, ["worker-0", "agent"])
    with pytest.raises(BadInput, match="only='worker0'.*did you mean 'worker-0'.*Its processes: "):
        listing.refuse_strangers("one", known, ["worker-0", "worker0"])
    listing.refuse_strangers("one", {"a": None}, ["worker-9"])  # no node has told its processes


def test_the_disk_space_of_all_nodes_is_one_line():
    gigabyte = 10**9
    disks = {
        "a": DiskUse(jobs=50, bytes=8 * gigabyte, free=400 * gigabyte),
        "b": DiskUse(jobs=2, bytes=gigabyte // 2, free=12 * gigabyte),
    }
    assert job_messages.of_disks(disks) == [
        "disk      2 nodes: 52 job folders with 8.5 GB; least free: 12.0 GB on b"
    ]
    assert job_messages.of_disks({}) == []
    assert json.loads(job_messages.as_json([], [], {}, disks))["disk"]["b"]["jobs"] == 2
