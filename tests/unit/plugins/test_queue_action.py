"""The action plugin mxcluster_queue: nodes that wait together for a job or for room."""

import threading
import types

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from mxcluster.ansible.queue_board import END, GO, QueueBoard, agreed
from mxcluster.job.plan import packed
from mxcluster.model.node_requests import LookRequest
from plugins.action import mxcluster_queue as action
from tests.plans import plan_with, process_of
from tests.waiting import until

NODE = {"python": "/p", "address": "10.0.0.1"}
FREE = {"held": {"ports": {}, "gpus": {}}, "after": ""}
TAKEN = {"held": {"ports": {"9500": "the job a"}, "gpus": {}}, "after": ""}
REFUSED = {"failed": True, "msg": "node1 refuses"}
REASON = "b: port 9500 on 10.0.0.1 is in use by the job a"
LOST = AnsibleConnectionFailure("no route to host")


def after(state):
    return dict(FREE, after=state)


class Nodes:
    """Two nodes of a job. Args: `answers` {host: answers in turn; the last one is repeated}."""

    def __init__(self, answers, monkeypatch, tmp_path, **options):
        self.answers = {host: list(given) for host, given in answers.items()}
        self.asked, self.shown, self.withdrawn = {host: [] for host in answers}, [], []
        monkeypatch.setattr(action.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
        monkeypatch.setattr(action.NodeTask, "run", lambda self, tmp, task_vars: {})
        monkeypatch.setattr(action.ActionModule, "_hear_signals", lambda self: None)
        monkeypatch.setattr(action.ActionModule, "limit_connecting", lambda *_: None)
        monkeypatch.setattr(action.display, "display", self.shown.append)
        processes = [process_of(host=host, index=index) for index, host in enumerate(answers)]
        given = dict({"lease": 1.0, "root_port": 9500}, **options)
        plan = plan_with(*processes, options=given, nodes=dict.fromkeys(answers, NODE))
        looks = {host: LookRequest(address="10.0.0.1", ports=[9500]) for host in answers}
        self.packed = packed.summary(plan, looks).packed_plan

    def plugin(self, host, check=False):
        made = object.__new__(action.ActionModule)
        made._task = types.SimpleNamespace(
            check_mode=check,
            args={
                "python": "/p",
                "user": "",
                "job_dir": "/jobs/job-1",
                "packed_plan": self.packed,
                "poll": "0",
            },
        )

        def ask(python, request, task_vars):
            if request.ticket is None:
                self.withdrawn.append(host)
                return dict(FREE)
            self.asked[host].append(request)
            answers = self.answers[host]
            found = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(found, Exception):
                raise found
            return dict(found() if callable(found) else found)

        made.ask = ask
        return made

    def begin(self, host):
        """Run the task of `host` in a thread; its result comes into `results`."""

        def run():
            try:
                self.results[host] = self.plugin(host).run(None, {"inventory_hostname": host})
            except AnsibleError as error:
                self.results[host] = {"unreachable": str(error)}

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def run(self):
        """Run the tasks of all nodes, and return {host: result}."""
        self.results = {}
        for thread in [self.begin(host) for host in self.answers]:
            thread.join(60)
            assert not thread.is_alive(), (self.asked, self.results)
        return self.results


@pytest.fixture
def nodes(monkeypatch, tmp_path):
    """Return a function that makes Nodes."""
    return lambda answers, **options: Nodes(answers, monkeypatch, tmp_path, **options)


def test_all_nodes_wait_for_the_last_one(nodes):
    """A node with room renews its ticket until the others have room, and the date is one."""

    def of_b():
        return FREE if len(made.asked["a"]) > 2 and len(made.asked["b"]) > 1 else TAKEN

    made = nodes({"a": [FREE], "b": [of_b]}, wait_for_room=60)
    assert made.run() == {"a": {}, "b": {}}
    tickets = [request.ticket for asked in made.asked.values() for request in asked]
    assert len({ticket.since for ticket in tickets}) == 1 and tickets[0].ports == [9500]
    assert made.withdrawn == [], "the agent removes the ticket"
    assert made.asked["b"][1].ticket.reasons == [REASON]
    assert made.shown == ["waiting for room: " + REASON], "each reason once"


@pytest.mark.slow
def test_a_wait_ends_on_all_nodes_when_its_time_is_over(nodes):
    made = nodes({"a": [FREE], "b": [TAKEN]}, wait_for_room=1)
    found = made.run()
    assert found["a"] == {} and found["b"]["failed"]
    assert found["b"]["msg"] == (
        "b: port 9500 on 10.0.0.1 is in use by the job a. The job has waited for 0:01: give a "
        "longer wait_for_room, name other ports or GPUs, or end the holder"
    )
    assert sorted(made.withdrawn) == ["a", "b"]


@pytest.mark.parametrize("trouble", [REFUSED, LOST])
def test_a_short_loss_of_a_node_does_not_end_the_wait(nodes, trouble):
    made = nodes({"a": [TAKEN, trouble, trouble, FREE]}, wait_for_room=3600, lease=3600.0)
    assert made.run() == {"a": {}}


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [REFUSED, LOST])
def test_a_lasting_loss_of_a_node_ends_the_wait_on_all_nodes(nodes, trouble):
    made = nodes({"a": [FREE], "b": [TAKEN, trouble]}, wait_for_room=3600, lease=1.0)
    found = made.run()
    assert found["a"] == {} and ("failed" in found["b"] or "unreachable" in found["b"]), found
    assert made.withdrawn == ["a"], "the ticket of a silent node lapses"


@pytest.mark.parametrize("options", [{"wait_for_room": 3600}, {"after": "earlier"}])
def test_an_interrupted_wait_withdraws_all_tickets(nodes, options):
    made = nodes({"a": [dict(TAKEN, after="runs")], "b": [dict(TAKEN, after="runs")]}, **options)
    interrupted = made.plugin("a")
    made.plugin, plugin = lambda host: interrupted if host == "a" else plugin(host), made.plugin
    threads, made.results = [made.begin(host) for host in "ab"], {}
    until(lambda: all(len(asked) > 2 for asked in made.asked.values()))
    interrupted._is_interrupted = True
    for thread in threads:
        thread.join(60)
    assert made.results["a"]["failed"] and made.results["b"] == {}, made.results
    assert sorted(made.withdrawn) == ["a", "b"]


def test_a_job_that_waits_for_another_holds_no_port_and_gpu(nodes):
    answers = {"a": [after("unknown")], "b": [after("runs")] * 9 + [after("ended")]}
    made = nodes(answers, after="earlier")
    assert made.run() == {"a": {}, "b": {}}
    assert made.shown == ["waiting for the end of the job earlier"]
    tickets = [request.ticket for asked in made.asked.values() for request in asked]
    held = {(one.after, one.address, tuple(one.ports), tuple(one.gpus)) for one in tickets}
    assert held == {("earlier", None, (), ())} and made.withdrawn == []


def test_all_nodes_show_one_line_about_the_job_before(nodes):
    made = nodes({host: [after("runs")] * 9 + [after("ended")] for host in "abc"}, after="earlier")
    made.run()
    assert made.shown == ["waiting for the end of the job earlier"]


def test_the_job_queues_after_the_end_of_the_other_job(nodes):
    answers = {"a": [after("runs"), after("ended"), TAKEN, FREE]}
    made = nodes(answers, after="earlier", wait_for_room=60)
    assert made.run() == {"a": {}}
    found = [(request.ticket.after, list(request.ticket.ports)) for request in made.asked["a"]]
    assert found == [("earlier", [])] * 2 + [("", [9500])] * 2


def test_a_job_that_no_node_knows_is_refused(nodes):
    made = nodes({"a": [after("unknown")], "b": [after("unknown")]}, after="typo")
    found = made.run()
    assert found["a"]["msg"] == found["b"]["msg"]
    assert found["a"]["msg"].startswith(
        "after=typo: no node of this job has such a job. Name a job"
    )
    assert sorted(made.withdrawn) == ["a", "b"]


def test_text_of_a_node_cannot_move_the_cursor(nodes):
    bad = {"held": {"ports": {"9500": "\x1b[2Jthe job a"}, "gpus": {}}, "after": ""}
    made = nodes({"a": [bad, FREE]}, wait_for_room=60)
    made.run()
    assert made.shown and "\x1b" not in made.shown[0]


def test_check_mode_does_not_wait(nodes):
    made = nodes({"a": [TAKEN]}, wait_for_room=60)
    found = made.plugin("a", check=True).run(None, {"inventory_hostname": "a"})
    assert "check mode" in found["msg"] and made.asked["a"] == []


def test_the_first_result_of_a_wait_counts(tmp_path):
    boards = [QueueBoard(str(tmp_path / "board"), host) for host in "ab"]
    boards[0].post(True, "ab")
    assert boards[0].result() == boards[1].result() == ""
    boards[0].post(False, "ab")
    boards[1].post(True, "ab")
    assert boards[1].result() == ""
    boards[0].post(True, "ab")
    boards[1].post(False, "ab")  # it has lost its room at the last moment
    assert boards[1].end(END) == boards[0].result() == GO


def test_all_forks_agree_on_one_text(tmp_path):
    path = str(tmp_path / "text")
    assert agreed(path, lambda: "first") == agreed(path, lambda: "second") == "first"
