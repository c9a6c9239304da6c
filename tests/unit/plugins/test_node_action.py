"""Waiting for a job, on the controller: what is survived, and what ends it."""
import json
import os
import shutil
import subprocess
import time
import types
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.utils.unsafe_proxy import AnsibleUnsafe

from mxcluster import node_task, processes
from mxcluster.plan import packed as packed_plan
from plugins.action import mxcluster_node as action
from tests.unit.report import fake_run

RUNNING = {"status": {"state": "running"}, "ended": False}
DONE = {"status": {"state": "ended", "reason": "done"}, "ended": True}
BROKEN = {"failed": True, "msg": "no job in /jobs/j: status.json is not there"}
LOST = AnsibleConnectionFailure("Data could not be sent to remote host \"10.0.0.1\". Make sure this host can be reached over "
                                "ssh: ssh: connect to host 10.0.0.1 port 22: No route to host\r\n")
SUDO = AnsibleError("Timeout (12s) waiting for privilege escalation prompt: ")


def is_unsafe(value):
    """Whether Ansible will never carry out a template in it."""
    return isinstance(value, AnsibleUnsafe)


class Clock:
    """time, as far as the plugin uses it; every try takes a second, too."""

    def __init__(self):
        self.now, self.slept = 0.0, 0

    def monotonic(self):
        return self.now

    localtime, strftime = staticmethod(time.localtime), staticmethod(time.strftime)

    def time(self):
        return self.now

    def sleep(self, seconds):
        self.slept += 1
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(action, "time", made)
    return made


def plugin(answers, clock=None, **arguments):
    """The plugin, with a node that gives these answers in turn, the last one for ever; and the commands that it was given."""
    made, commands = object.__new__(action.ActionModule), []
    made._task = types.SimpleNamespace(args=dict({"command": "wait", "python": "/p", "job_dir": "/jobs/j"}, **arguments))

    def ask(arguments, task_vars):
        commands.append(arguments["command"])
        if clock:
            clock.now += 1
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)
    made.ask = ask
    return made, commands


def run(made, monkeypatch):
    monkeypatch.setattr(action.NodeTask, "run", lambda self, tmp, task_vars: {})
    return made.run(None, {"inventory_hostname": "node1"})


@pytest.mark.parametrize("trouble", [[LOST], [BROKEN], [SUDO], [LOST, BROKEN, LOST]])
def test_a_poll_that_is_lost_is_asked_again(clock, monkeypatch, trouble):
    made, commands = plugin([*trouble, RUNNING], clock, patience=20)
    assert run(made, monkeypatch) == RUNNING
    assert len(commands) == len(trouble) + 1 and clock.slept >= len(trouble)


def test_a_node_is_asked_for_its_own_part_of_the_plan(monkeypatch):
    plan = fake_run.make_plan(workers=2, groups=1)
    plan["nodes"]["node1"].update(python="/p", job_dir="/jobs/j")
    text = packed_plan.told(plan, {"node1": {"address": "10.0.0.1"}, "node2": {"address": "10.0.0.2"}})["packed_plan"]
    for job_dir, problems in (("/jobs/j", 0), ("/jobs/elsewhere/j", 1)):
        made, seen = plugin([{"problems": []}], command="look", packed_plan=text, problems=[], job_dir=job_dir)[0], {}
        made.ask = lambda arguments, task_vars, seen=seen: seen.update(arguments) or {"problems": []}
        result = run(made, monkeypatch)
        assert seen["request"] == {"address": "10.0.0.1"} and "packed_plan" not in seen
        assert bool(result.get("failed")) == bool(problems), result


def test_a_failure_that_stays_is_the_result(clock, monkeypatch):
    made, commands = plugin([BROKEN], clock, patience=60)
    assert run(made, monkeypatch) == BROKEN
    assert 60 <= clock.now < 63 and len(commands) <= 31, "at full speed"


def test_a_node_that_stays_away_is_gone_and_ends_the_others(clock, monkeypatch, tmp_path):
    made, _ = plugin([LOST], clock, patience=60, board=str(tmp_path))
    clock.now = 1000.0
    answer = run(made, monkeypatch)
    assert 1060 <= clock.now < 1063
    assert answer["unreachable"] and answer["ended"], "until would go on, or fail"
    assert answer["lost"] == {"since": 1000.0, "why": "ssh: connect to host 10.0.0.1 port 22: No route to host"}
    assert answer["msg"].startswith("node1 is gone: it has not answered over ssh since ")
    assert action.others(str(tmp_path), "node2") == ["node1"]


def test_a_node_that_has_hung_up_without_a_word():
    """As ssh leaves it when the connection that others share has died."""
    error = 'Data could not be sent to remote host "10.0.0.1". Make sure this host can be reached over ssh: '
    for said in ("", "[Errno 32] Broken pipe. [Errno 32] Broken pipe"):
        assert action.gone("node1", 5.0, error + said)["lost"]["why"] == "it has hung up"


def test_an_error_that_is_not_the_connections_is_raised(clock, monkeypatch):
    made, commands = plugin([AnsibleError("no module of that name")], clock, patience=60)
    with pytest.raises(AnsibleError, match="no module"):
        run(made, monkeypatch)
    assert len(commands) == 1


def test_a_wait_tries_again_by_itself_and_soon(clock, monkeypatch):
    """Ansible's own retries, with ten seconds for each connection, would hold up the others."""
    options = {"ssh_args": "-o ControlMaster=auto"}
    made, _ = plugin([RUNNING], clock, patience=60)
    made._connection = types.SimpleNamespace(transport="ssh", set_option=options.__setitem__, get_option=options.get)
    for _ in range(2):  # the same connection serves all the polls of a task
        run(made, monkeypatch)
    assert options == {"ssh_args": "-o ConnectTimeout=3 -o ControlMaster=auto", "reconnection_retries": 0}


def test_while_a_node_is_silent_the_others_are_asked_at_once(clock, monkeypatch, tmp_path):
    seen = []

    def look_at_another():
        made, _ = plugin([RUNNING], board=str(tmp_path), seconds=5)
        made.ask = lambda given, task_vars: seen.append(given["seconds"]) or RUNNING
        monkeypatch.setattr(action.NodeTask, "run", lambda self, tmp, task_vars: {})
        made.run(None, {"inventory_hostname": "node2"})
    look_at_another()
    made, _ = plugin([LOST, RUNNING], clock, board=str(tmp_path), patience=60)
    monkeypatch.setattr(clock, "sleep", lambda seconds: (look_at_another(), setattr(clock, "now", clock.now + seconds)))
    assert run(made, monkeypatch) == RUNNING
    look_at_another()
    assert seen[0] == seen[-1] == 5 and set(seen[1:-1]) == {0}, seen


def test_who_does_not_ask_for_patience_gets_none(clock, monkeypatch):
    made, commands = plugin([BROKEN], clock)
    assert run(made, monkeypatch) == BROKEN and commands == ["wait"] and clock.slept == 0


def test_a_job_that_has_failed_elsewhere_is_not_waited_for_long(clock, monkeypatch, tmp_path):
    action.post(str(tmp_path), "node2")
    made, _ = plugin([LOST], clock, patience=60, board=str(tmp_path))
    assert run(made, monkeypatch)["unreachable"] and clock.now < 8


def test_a_failure_elsewhere_that_is_learnt_between_two_tries_counts_at_once(clock, monkeypatch, tmp_path):
    made, commands = plugin([LOST], clock, patience=60, board=str(tmp_path))
    ask, sleep = made.ask, clock.sleep
    made.ask = lambda *given: setattr(clock, "now", clock.now + 7) or ask(*given)  # ssh has waited for it
    clock.sleep = lambda seconds: action.post(str(tmp_path), "node2") or sleep(seconds)
    assert run(made, monkeypatch)["unreachable"] and commands == ["wait"]


def test_a_failure_is_posted_and_ends_the_others(monkeypatch, tmp_path):
    failed = {"status": {"state": "ended", "reason": "failed"}, "ended": True}
    assert run(plugin([failed], board=str(tmp_path))[0], monkeypatch) == failed
    assert action.others(str(tmp_path), "node2") == ["node1"]
    made, commands = plugin([RUNNING, DONE], board=str(tmp_path))
    ask, peers = made.ask, []
    made.ask = lambda arguments, task_vars: peers.append(arguments.get("peer")) or ask(arguments, task_vars)
    (tmp_path / "node1").rename(tmp_path / "node2")
    assert run(made, monkeypatch)["ended"] and commands == ["wait", "stop"]
    assert peers == [False, True], "nobody has asked for the end"


def test_who_only_watches_does_not_end_a_job_that_it_cannot_see(clock, monkeypatch, tmp_path):
    made, _ = plugin([LOST], clock, patience=10, board=str(tmp_path), keeper=False)
    assert run(made, monkeypatch)["unreachable"] and action.others(str(tmp_path), "node2") == []


def test_what_an_earlier_run_has_noted_is_not_seen(monkeypatch, tmp_path):
    """Each run of ansible-playbook has a folder of its own."""
    for number in (1, 2):
        monkeypatch.setattr(action.C, "DEFAULT_LOCAL_TMP", str(tmp_path / str(number)))
        made, commands = plugin([RUNNING, DONE], board="failed-job")
        run(made, monkeypatch)
        assert commands == ["wait"]
        action.post(str(tmp_path / str(number) / "failed-job"), "node2")


@pytest.mark.parametrize("trouble", [LOST, SUDO])
def test_a_stop_that_is_lost_is_tried_again_by_the_next_wait(monkeypatch, tmp_path, trouble):
    action.post(str(tmp_path), "node2")
    made, commands = plugin([RUNNING, trouble], board=str(tmp_path))
    assert run(made, monkeypatch) == RUNNING and commands == ["wait", "stop"]


class Node:
    """A connection to a node that is this machine, and what is done over it. `becomes`: Ansible becomes somebody there."""

    transport = "local"

    def __init__(self, made, becomes=False, said="1000\n"):
        self.become, self.said, self.commands = becomes, said, []
        made._connection, made._low_level_execute_command = self, self.execute
        made._task.check_mode = False

    def fetch_file(self, path, into):
        shutil.copy(path, into)

    def execute(self, command, sudoable=True):
        self.commands.append((command, sudoable))
        if command == "id -u":
            return {"stdout": self.said, "rc": 0}
        return {"rc": subprocess.call(["sh", "-c", command]), "stderr": ""}


def waits(tmp_path, *answers, **options):
    """The plugin that waits and then brings what is left; the node, the file on it, and where that goes."""
    there, into = tmp_path / "spool" / "j.tar", tmp_path / "collected" / "j" / "node1.tar"
    there.parent.mkdir()
    there.write_bytes(b"what is left")
    made, commands = plugin([DONE, *answers], output="/jobs/j/collected.tar", spool=str(there.parent), into=str(into))
    node = Node(made, **options)
    return made, commands, node, there, into


def packed(there, **others):
    return dict({"output": str(there), "bytes": 12, "files": 1, "spooled": True, "left": [], "problem": None}, **others)


def test_what_is_left_is_brought_as_soon_as_it_has_ended_and_removed_there(monkeypatch, tmp_path):
    made, commands, node, there, into = waits(tmp_path)
    answers, seen, ask = [DONE, packed(there)], [], made.ask
    made.ask = lambda arguments, task_vars: seen.append(arguments) or ask(arguments, task_vars) and answers.pop(0)
    result = run(made, monkeypatch)
    assert commands == ["wait", "collect"] and result["ended"] and result["packed"] == packed(there)
    assert seen[1]["told"] == "done" and "into" not in seen[1]
    assert into.read_bytes() == b"what is left" and not there.exists()


def test_nothing_is_brought_while_it_runs(monkeypatch, tmp_path):
    made, commands = plugin([RUNNING], into=str(tmp_path / "x.tar"))
    Node(made)
    assert run(made, monkeypatch) == RUNNING and commands == ["wait"]


def test_what_the_user_has_packed_stays_there(monkeypatch, tmp_path):
    made, _, node, there, into = waits(tmp_path, packed(tmp_path / "spool" / "j.tar", spooled=False))
    run(made, monkeypatch)
    assert into.exists() and there.exists() and node.commands == []


@pytest.mark.parametrize("answer, told", [
    (BROKEN, {"failed": True, "msg": BROKEN["msg"]}),
    (LOST, {"unreachable": True, "msg": str(LOST)}),
    ({"output": "/nowhere", "bytes": 12, "spooled": True}, {"failed": True}),
    ({"bytes": 13}, {"failed": True})], ids=["not packed", "lost", "not there", "cut off"])
def test_the_job_has_ended_also_where_nothing_could_be_brought(monkeypatch, tmp_path, answer, told):
    if isinstance(answer, dict) and "bytes" in answer:
        answer = packed(tmp_path / "spool" / "j.tar", **answer)
    made, _, _, there, into = waits(tmp_path, answer)
    result = run(made, monkeypatch)
    assert there.exists(), "nothing is lost"
    assert result["ended"] and result["status"] == DONE["status"] and not into.exists()
    assert result["packed"] == (answer if isinstance(answer, dict) and "bytes" in answer else {}), "what root has seen counts"
    assert {name: result[name] for name in told} == told and result["msg"]


@pytest.mark.parametrize("where", ["who logs in", "collect"])
def test_a_connection_that_is_lost_while_bringing_is_tried_again(clock, monkeypatch, tmp_path, where):
    made, commands, node, there, into = waits(tmp_path, becomes=True)
    answers, troubles = [DONE] + [LOST] * (where == "collect") + [packed(there)], [LOST] * (where != "collect")

    def ask(arguments, task_vars):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def who():
        if troubles:
            raise troubles.pop()
        return 1000
    made.ask, made._who_logs_in, made._task.args = ask, who, dict(made._task.args, patience=60)
    assert run(made, monkeypatch)["packed"]["bytes"] == 12 and into.exists() and clock.slept


def test_a_connection_that_stays_lost_while_bringing_keeps_what_is_known(clock, monkeypatch, tmp_path):
    made, commands = plugin([DONE, LOST], clock, into=str(tmp_path / "x.tar"), patience=1000)
    Node(made)
    result = run(made, monkeypatch)
    assert result["unreachable"] and result["status"] == DONE["status"] and clock.now < 60, commands


def test_a_node_that_could_pack_nothing_is_asked_for_no_file(monkeypatch, tmp_path):
    made, _, _, there, into = waits(tmp_path, packed(tmp_path / "spool" / "j.tar", problem="the disk is full"))
    assert run(made, monkeypatch)["packed"]["problem"] and not into.exists()


@pytest.mark.parametrize("becomes, said, reader", [
    (True, "1000\r\n", 1000), (True, "", None), (False, "1000\n", "not asked")])
def test_who_logs_in_is_asked_where_ansible_becomes_somebody(monkeypatch, tmp_path, becomes, said, reader):
    made, _, node, there, _ = waits(tmp_path, becomes=becomes, said=said)
    answers, seen = [DONE, packed(there)], []
    made.ask = lambda arguments, task_vars: seen.append(arguments) or answers.pop(0)
    run(made, monkeypatch)
    assert seen[1].get("reader", "not asked") == reader
    assert all(not sudoable for command, sudoable in node.commands if command == "id -u")


def told(node, command, code=0, err="", check=False, **given):
    """The result of a command whose program on the node prints `node`, through the whole of the plugin; and what was run."""
    made = object.__new__(action.ActionModule)
    made._task, made._play_context, ran = types.SimpleNamespace(check_mode=check), types.SimpleNamespace(no_log=False), []
    made._is_pipelining_enabled = lambda *style: True
    out = node if isinstance(node, str) else "a shell says hello\n%s\n" % json.dumps(node)
    made._low_level_execute_command = lambda program, in_data: ran.append((program, json.loads(in_data.decode()))) or {
        "rc": code, "stdout": out, "stderr": err}
    asked = node_task.completed(dict({"command": command, "python": "/env/bin/python", "job_dir": "/jobs/j"}, **given))
    return made.ask(asked, {"inventory_hostname": "node1"}), ran


def test_an_answer_that_cannot_be_is_a_failure():
    """What the node has answered comes through processes of the training user; all commands ask in this one place."""
    answer, _ = told({"jobs": [], "units": "{{ 1 }}"}, "jobs", jobs_dir="/jobs")
    assert answer["failed"] and "the answer of node1 to jobs is refused: units='{{ 1 }}'" in answer["msg"]
    assert is_unsafe(answer["msg"])
    fine = {"problems": ["{{ lookup('pipe', 'touch evil') }}"], "held": {"ports": {"9091": "{{ x }}"}, "gpus": {}}, "fits": True}
    answer, _ = told(fine, "look")
    assert answer == dict(fine, changed=False) and is_unsafe(answer["problems"][0]) and is_unsafe(answer["held"]["ports"]["9091"])
    record = {"fingerprints": {"numpy": "0" * 64}, "address_of_default_route": None, "hostname": "", "gpus": 0}
    assert told(record, "record")[0] == {"record": record, "changed": False}


def test_what_goes_to_a_node_is_on_no_command_line_and_in_no_answer():
    given = {"plan": {"job": "j"}, "secret_env": {"K": "hush"}, "token": "tok"}
    _, [(program, asked)] = told({"job": "j", "pid": 7, "status": None}, "start", **given)
    assert program == "/env/bin/python -I -m mxcluster.entry"
    assert {name: asked[name] for name in (*given, "check")} == dict(given, check=False)
    answer, _ = told({"error": "the agent did not start: K=hush, tok"}, "start", code=1, **given)
    assert answer["failed"] and "hush" not in str(answer) and "tok" not in answer["msg"] and "did not start" in answer["msg"]


@pytest.mark.parametrize("command", ["start", "wait", "stop", "collect", "piece"])
def test_check_mode_asks_no_node_to_change_anything(command):
    answer, ran = told({}, command, check=True, output="/jobs/j.tar", file="model")
    assert ran == [] and answer["msg"] == "check mode: the command %s was not run" % command


def test_a_short_secret_spoils_no_answer():
    given = {"plan": {"job": "job-1"}, "secret_env": {"DEBUG": "1"}, "job_dir": "/jobs/job-1"}
    answer, _ = told({"job": "job-1", "pid": 71, "status": None}, "start", **given)
    assert answer == {"job": "job-1", "pid": 71, "status": None, "changed": True}


@pytest.mark.parametrize("given, hidden", [({}, False), ({"token": "tok"}, True), ({"secret_env": {"K": "hush"}}, True)])
def test_what_comes_back_for_a_secret_is_shown_by_no_connection(given, hidden):
    """Ansible's ssh shows all that it hears, at -vvv."""
    made, seen = object.__new__(action.ActionModule), []
    made._task, made._play_context = types.SimpleNamespace(check_mode=False), types.SimpleNamespace(no_log=False)
    made._is_pipelining_enabled = lambda *style: True
    made._low_level_execute_command = lambda program, in_data: seen.append(made._play_context.no_log) or {
        "rc": 0, "stdout": json.dumps({"job": "j", "pid": 7, "status": None}), "stderr": ""}
    made.ask(node_task.completed(dict({"command": "start", "python": "/p", "job_dir": "/jobs/j"}, **given)),
             {"inventory_hostname": "node1"})
    assert seen == [hidden]


def look_with_hello(said, pipelining=True, hello=None):
    """The result of a look that is the first word to a node whose shell says so; and what was run."""
    made, ran = object.__new__(action.ActionModule), []
    made._task, made._play_context = types.SimpleNamespace(check_mode=False), types.SimpleNamespace(no_log=False)
    made._connection = mock.Mock(transport="ssh", **{"_shell.join_path": os.path.join})
    made._is_pipelining_enabled = lambda *style: pipelining
    made._make_tmp_path, made._transfer_data = lambda: ran.append("file") or "/tmp/x", lambda path, data: None
    made._fixup_perms2 = made._remove_tmp_path = lambda *given, **more: None

    def execute(program, in_data=None):
        ran.append(program)
        if isinstance(said, Exception):
            raise said
        return {"rc": 0, "stdout": said, "stderr": ""}
    made._low_level_execute_command = execute
    asked = node_task.completed({"command": "look", "python": "/p", "hello": hello or {"users": ["root"], "trainer": "mx"}})
    return made.ask(asked, {"inventory_hostname": "node1", "ansible_python_interpreter": "/p"}), ran


HELLO = "mxcluster-user=%s\nmxcluster-uid=%d\nmxcluster-python=/p\nmxcluster-end=\n"
FITS = {"problems": [], "held": {"ports": {"9091": "comm mxcluster-user=joe"}, "gpus": {}}, "fits": True}


@pytest.mark.parametrize("pipelining", [True, False])
def test_a_look_is_the_first_word(pipelining):
    answer, ran = look_with_hello(HELLO % ("root", 0) + json.dumps(FITS), pipelining)
    assert answer == dict(FITS, changed=False)
    assert len(ran) == 1 and ran[0].endswith("done; /p -I -m mxcluster.entry") if pipelining else ran[1] == "file", ran


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize("said, hello, words", [
    (HELLO % ("joe", 1000) + json.dumps(FITS), None, "node1: Ansible is joe there, and this takes root"),
    (HELLO % ("root", 0) + json.dumps(FITS), {"users": [], "trainer": ""}, "so root would train"),
    ("This account is not available.", None, "This account is not available."),
    (LOST, None, "node1 (node1, port 22): it cannot be reached (ssh: connect to host 10.0.0.1 port 22: No route to host)")])
def test_a_look_at_who_cannot_be_there_fails_with_the_cure(pipelining, said, hello, words):
    answer, ran = look_with_hello(said, pipelining, hello)
    assert answer["failed"] and words in answer["msg"] and "file" not in ran, answer


@pytest.mark.parametrize("pipelining", [True, False])
def test_without_pipelining_a_file_carries_it(pipelining):
    made, ran = object.__new__(action.ActionModule), []
    made._task, made._play_context = types.SimpleNamespace(check_mode=False), types.SimpleNamespace(no_log=False)
    made._connection = mock.Mock(**{"_shell.join_path": os.path.join})
    made._is_pipelining_enabled = lambda *style: pipelining
    made._make_tmp_path = lambda: ran.append("made") or "/tmp/of ansible"
    made._transfer_data = lambda path, data: ran.append((path, json.loads(data.decode())["command"]))
    made._fixup_perms2 = lambda paths, execute: ran.append(paths)
    made._remove_tmp_path = lambda path, force: ran.append("removed " + path)
    made._low_level_execute_command = lambda program, in_data=None: ran.append((program, in_data is None)) or {
        "rc": 0, "stdout": json.dumps({"ran": False, "status": None}), "stderr": ""}
    asked = node_task.completed({"command": "stop", "python": "~/env/bin/python", "job_dir": "/j"})
    made.ask(asked, {"inventory_hostname": "node1"})
    file = "/tmp/of ansible/asked.json"
    entry = "~/env/bin/python -I -m mxcluster.entry"
    assert ran == ([(entry, False)] if pipelining else [
        "made", (file, "stop"), ["/tmp/of ansible", file], (entry + " < '%s'" % file, True), "removed /tmp/of ansible"])


@pytest.mark.parametrize("answer, leaves", [(BROKEN, True), (DONE, True), (RUNNING, False)])
def test_the_role_leaves_the_loop_when_it_has_failed(answer, leaves):
    """As Ansible sees the condition: a result that has failed tells nothing of an end."""
    import yaml
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

    from tests.ansible_modules import PROJECT
    tasks = yaml.safe_load((PROJECT / "roles" / "train_job" / "tasks" / "follow.yml").read_text())
    until = next(task["until"] for block in tasks for task in block.get("block", []) if "until" in task)
    templar = Templar(DataLoader(), variables={"__train_job_wait": dict({"failed": False}, **answer)})
    assert str(templar.template("{{ %s }}" % until)) == str(leaves)


@pytest.mark.parametrize("started, done", [
    ({"job": "one", "pid": 7}, ["mxcluster_node", "mxcluster_file"]),
    ({"failed": False, "msg": "another controller has just started the job one"}, ["ansible.builtin.fail"]),
    ({"unreachable": True}, ["ansible.builtin.fail"])])
def test_who_was_refused_by_a_node_undoes_nothing_there(started, done):
    """The folder of that name may be another controller's job: it is ended and removed only by who started it."""
    import yaml
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

    from tests.ansible_modules import PROJECT
    tasks = yaml.safe_load((PROJECT / "roles" / "train_job" / "tasks" / "undo.yml").read_text())
    templar = Templar(DataLoader(), variables={"__train_job_started": started})
    runs = [task for task in tasks if str(templar.template("{{ %s }}" % task.get("when", "true"))) == "True"]
    assert [name for task in runs for name in task if name.startswith(("mxcluster_", "ansible."))] == done


def test_checkpoints_are_brought_between_two_waits(monkeypatch, tmp_path):
    """In pieces that the node is asked for; the module is told where they have gone only by what it need not offer again."""
    import base64

    from tests.unit.test_checkpoints import save
    there, here = tmp_path / "node", tmp_path / "runs" / "j" / "checkpoints"
    there.mkdir()
    save(there, 1, servers=1)
    parts = {path.name: path.read_text() for path in there.glob("*.json")}
    offering = dict(RUNNING, checkpoints={"held": "mlp-0001", "parts": parts})
    made, commands = plugin([offering], patience=60, checkpoints={"folder": str(here), "keep": 3, "plan": {"job": "j"}})
    made._task.check_mode, waits = False, []

    def ask(arguments, task_vars):
        commands.append(arguments["command"])
        if arguments["command"] == "wait":
            waits.append(arguments)
            return dict(offering)
        data = (there / arguments["file"]).read_bytes()[arguments["offset"]:][:arguments["most"]]
        return {"data": base64.b64encode(data).decode()}
    made.ask = ask
    assert run(made, monkeypatch) == RUNNING and commands == ["wait", "piece", "piece"]
    assert run(made, monkeypatch) == RUNNING and commands[3:] == ["wait"]
    assert [arguments["took"] for arguments in waits] == ["", "mlp-0001"]
    assert all("checkpoints" not in arguments for arguments in waits), "the plan need not go to the node with every poll"
    assert sorted(path.name for path in here.glob("mlp-*")) == sorted(path.name for path in there.glob("mlp-*"))
    assert json.loads((here.parent / "plan.json").read_text()) == {"job": "j"}


@pytest.mark.parametrize("trouble", [LOST, SUDO])
def test_a_piece_that_is_lost_with_its_connection_ends_no_job(monkeypatch, tmp_path, trouble):
    from tests.unit.test_checkpoints import save
    there = tmp_path / "node"
    there.mkdir()
    save(there, 1, servers=1)
    offering = dict(RUNNING, checkpoints={"held": "mlp-0001", "parts": {path.name: path.read_text()
                                                                       for path in there.glob("*.json")}})
    wanted = {"folder": str(tmp_path / "runs" / "j" / "checkpoints"), "keep": 3, "plan": {"job": "j"}}
    made, commands = plugin([offering, trouble], checkpoints=wanted)
    made._task.check_mode, warned = False, []
    monkeypatch.setattr(action.display, "warning", warned.append)
    assert run(made, monkeypatch) == RUNNING and commands == ["wait", "piece"] and len(warned) == 1


def test_a_disk_of_the_controllers_that_is_full_ends_no_job(monkeypatch, tmp_path):
    offering = dict(RUNNING, checkpoints={"held": "mlp-0001", "parts": {}})
    (tmp_path / "file").write_text("")
    made, _ = plugin([offering], checkpoints={"folder": str(tmp_path / "file"), "keep": 3, "plan": {}})
    made._task.check_mode, warned = False, []
    monkeypatch.setattr(action.display, "warning", warned.append)
    assert run(made, monkeypatch) == RUNNING and "node1: no checkpoint could be brought" in warned[0]


def test_a_start_tells_who_will_renew_the_lease_and_the_token(monkeypatch, tmp_path):
    monkeypatch.setattr(action.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    made, _ = plugin([{"job": "j"}], command="start", plan={"job": "j"}, job_dir="/jobs/j")
    made._connection, told = types.SimpleNamespace(become=None), []
    made.ask = lambda arguments, task_vars: told.append(arguments) or {"job": "j"}
    assert run(made, monkeypatch) == {"job": "j"} and made._task.args["plan"] == {"job": "j"}
    assert told[0]["plan"] == {"job": "j", "controller": processes.witness(os.getppid())}
    assert told[0]["token"] == action.token_of("j") and "token" not in made._task.args


def test_a_worker_that_is_done_while_its_mates_wait_for_it_is_seen_by_its_own_node(tmp_path, monkeypatch):
    """By what all nodes have told last, once it has been so for a while; a node that has told it need not tell it again."""
    board, together, clock = str(tmp_path / "board"), [[0, 1]], []
    monkeypatch.setattr(action.time, "time", lambda: clock[-1])

    def tell(now, host, idle, **pulses):
        clock.append(now)
        return action.uneven(board, host, {name.replace("_", "-"): {"phase": phase, "pushes": pushes, "time": 1.0, "idle": idle}
                                           for name, (phase, pushes) in pulses.items()}, together)
    waits, done = {"worker_0": ("training", 8)}, {"worker_1": ("finished", 6)}
    assert tell(100, "node1", 3.0, **waits) is None
    assert tell(100, "node2", 3.5, **done) is None
    assert tell(102.1, "node2", 5.6, **done) == "worker-1"  # node1 was seen waiting 2.1 s ago, for 3 s
    assert tell(102.1, "node1", 5.1, **waits) is None  # it is node2's worker
    assert tell(103, "node1", 0.0, **waits) is None
    assert tell(103, "node2", 6.5, **done) is None  # node1's worker calls its store: it waits for nobody
    assert tell(108, "node1", 5.0, server_0=("updating", 0), **waits) is None
    assert tell(108, "node2", 11.5, **done) == "worker-1"  # whatever another process of node1 does
    together.clear()
    assert tell(109, "node2", 12.5, **done) is None and action.others(board, "node3") == []


@pytest.mark.parametrize("told, known, words", [
    ({"problems": [], "held": {}}, [], None),
    ({"problems": ["no /data\x1b[2J\nFAKE"]}, ["its paths have moved"], "no /data FAKE\nits paths have moved"),
    ({"failed": True, "msg": "no Python"}, ["its paths have moved"], "no Python")])
def test_a_look_fails_for_what_the_node_lacks(told, known, words, monkeypatch):
    made, commands = plugin([told], command="look", problems=known, user="mxcluster")
    result = run(made, monkeypatch)
    assert commands == ["look"] and result.get("msg") == words and bool(result.get("failed")) == bool(words), result


def test_a_look_for_somebody_who_judges_for_himself_fails_for_nothing(monkeypatch):
    made, _ = plugin([{"problems": ["no /data"], "ports_open": "no nft"}], command="look", user="mxcluster")
    monkeypatch.setattr(action.display, "display", None)
    assert run(made, monkeypatch) == {"problems": ["no /data"], "ports_open": "no nft"}


@pytest.mark.parametrize("user, shown", [("mxcluster", ["node1: no nft"]), ("", [])])
def test_a_look_tells_of_ports_that_nothing_closes(user, shown, monkeypatch):
    """Without a training user nobody could close them, and the plan has said so."""
    made, _ = plugin([{"problems": [], "ports_open": "no nft"}], command="look", user=user, problems=[])
    seen = []
    monkeypatch.setattr(action.display, "display", seen.append)
    assert not run(made, monkeypatch).get("failed") and seen == shown


def test_all_forks_have_the_same_token_of_a_job(monkeypatch, tmp_path):
    """On a file system without hard links too, and however long the first of them takes to make it."""
    monkeypatch.setattr(action.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(os, "link", mock.Mock(side_effect=PermissionError(1, "Operation not permitted")))
    make = action.secrets.token_hex
    monkeypatch.setattr(action.secrets, "token_hex", lambda length: time.sleep(0.1) or make(length))
    readers = []
    for _ in range(8):
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                os.write(write, action.token_of("job").encode())
            finally:
                os._exit(0)
        os.close(write)
        readers.append(os.fdopen(read))
    tokens = {reader.read() for reader in readers}
    for _ in readers:
        os.wait()
    token, = tokens
    assert len(token) == 64 and action.token_of("another") != token
    assert sorted(os.listdir(str(tmp_path))) == ["token-another", "token-job"]
    assert all(os.stat(str(tmp_path / name)).st_mode & 0o777 == 0o600 for name in os.listdir(str(tmp_path)))
