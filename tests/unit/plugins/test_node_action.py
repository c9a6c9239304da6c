"""The action plugin mxcluster_node: retries during a job, and the ends of a wait."""

import base64
import json
import os
import resource
import shutil
import subprocess
import time
import types
from unittest import mock

import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from mxcluster.ansible import board as board_module
from mxcluster.ansible.board import Board
from mxcluster.ansible.node_arguments import Connection
from mxcluster.model.node_record import NodeFacts
from mxcluster.model.protocol import COMMANDS, Look, Stop
from mxcluster.model.status import LatestPulse
from mxcluster.node import processes
from plugins.action import mxcluster_node as action
from tests.ansible_modules import PROJECT
from tests.plans import part_json, part_of
from tests.templates import is_unsafe, templated
from tests.unit import statuses
from tests.unit.job.report.test_checkpoint_arrivals import save_files
from tests.unit.test_checkpoints import save


def answer(**status):
    known = statuses.status(dict({"processes": []}, **status))
    return {"status": known.encode(), "ended": known.has_ended}


RUNNING, DONE = answer(), answer(state="ended", reason="done")
BROKEN = {"failed": True, "msg": "/jobs/j has no status.json"}
LOST = AnsibleConnectionFailure(
    'Data could not be sent to remote host "10.0.0.1". Make sure this host can be reached over '
    "ssh: ssh: connect to host 10.0.0.1 port 22: No route to host\r\n"
)
SUDO = AnsibleError("Timeout (12s) waiting for privilege escalation prompt: ")


class Clock:
    """Replace `time` in the plugin; every try takes a second, too."""

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


@pytest.fixture(autouse=True)
def own_run(monkeypatch, tmp_path_factory):
    """Give each test the temporary folder of a run of Ansible."""
    monkeypatch.setattr(action.C, "DEFAULT_LOCAL_TMP", str(tmp_path_factory.mktemp("run")))


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(action, "time", made)
    return made


def failed_hosts(board):
    """Return the hosts on the board whose part of the job has failed."""
    return sorted(path.name for path in board.iterdir() if not path.name.startswith("."))


def fail(board, host="node2"):
    Board(str(board), host).post_failure()


def plugin(answers, clock=None, **arguments):
    """Return the plugin and the list of its commands.

    The node gives these answers in turn, and repeats the last one.
    """
    made, commands = object.__new__(action.ActionModule), []
    made._load_name, made._connection = "mxcluster_node", types.SimpleNamespace(transport="local")
    made._task = types.SimpleNamespace(
        args=dict({"command": "wait", "python": "/p", "job_dir": "/jobs/j"}, **arguments)
    )

    def ask(python, request, *_):
        commands.append(request.KIND)
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
def test_a_lost_poll_is_repeated(clock, monkeypatch, trouble):
    made, commands = plugin([*trouble, RUNNING], clock, patience=20)
    assert run(made, monkeypatch) == RUNNING
    assert len(commands) == len(trouble) + 1 and clock.slept >= len(trouble)


def test_a_lasting_failure_is_the_result(clock, monkeypatch):
    made, commands = plugin([BROKEN], clock, patience=60)
    assert run(made, monkeypatch) == BROKEN
    assert 60 <= clock.now < 63 and len(commands) <= 31, "too many tries"


def test_a_lost_node_is_reported_and_ends_the_others(clock, monkeypatch, tmp_path):
    made, _ = plugin([LOST], clock, patience=60, board=str(tmp_path))
    clock.now = 1000.0
    answer = run(made, monkeypatch)
    assert 1060 <= clock.now < 1063
    assert answer["unreachable"] and answer["ended"], (
        "without `ended`, the loop would go on or fail"
    )
    assert answer["lost"] == {
        "since": 1000.0,
        "why": "ssh: connect to host 10.0.0.1 port 22: No route to host",
    }
    assert answer["msg"].startswith("node1 is gone: it has not answered over ssh since ")
    assert failed_hosts(tmp_path) == ["node1"]


def test_a_closed_connection_without_a_message_has_a_reason():
    """ssh prints no message when a shared connection has died."""
    error = (
        'Data could not be sent to remote host "10.0.0.1". '
        "Make sure this host can be reached over ssh: "
    )
    for stdout in ("", "[Errno 32] Broken pipe. [Errno 32] Broken pipe"):
        assert action.gone("node1", 5.0, error + stdout)["lost"]["why"] == "connection lost"


def test_an_error_that_is_no_connection_error_is_raised(clock, monkeypatch):
    made, commands = plugin([AnsibleError("no module of that name")], clock, patience=60)
    with pytest.raises(AnsibleError, match="no module"):
        run(made, monkeypatch)
    assert len(commands) == 1


def test_a_wait_retries_soon_without_ansibles_own_retries(clock, monkeypatch):
    """Ansible's own retries, with ten seconds for each connection, would delay the other nodes."""
    options = {"ssh_args": "-o ControlMaster=auto"}
    made, _ = plugin([RUNNING], clock, patience=60)
    made._connection = types.SimpleNamespace(
        transport="ssh", set_option=options.__setitem__, get_option=options.get
    )
    for _ in range(2):  # the same connection serves all polls of a task
        run(made, monkeypatch)
    assert options == {
        "ssh_args": "-o ConnectTimeout=3 -o ControlMaster=auto",
        "reconnection_retries": 0,
    }


def test_while_a_node_is_silent_the_others_are_polled_at_once(clock, monkeypatch, tmp_path):
    seen = []

    def look_at_another():
        made, _ = plugin([RUNNING], board=str(tmp_path), seconds=5)
        made.ask = lambda python, wait, *_: seen.append(wait.seconds) or RUNNING
        monkeypatch.setattr(action.NodeTask, "run", lambda self, tmp, task_vars: {})
        made.run(None, {"inventory_hostname": "node2"})

    look_at_another()
    made, _ = plugin([LOST, RUNNING], clock, board=str(tmp_path), patience=60)
    monkeypatch.setattr(
        clock,
        "sleep",
        lambda seconds: (look_at_another(), setattr(clock, "now", clock.now + seconds)),
    )
    assert run(made, monkeypatch) == RUNNING
    look_at_another()
    assert seen[0] == seen[-1] == 5 and set(seen[1:-1]) == {0}, seen


@pytest.mark.parametrize("keeper", [True, False])
@pytest.mark.parametrize("trouble", [LOST, BROKEN])
def test_short_polls_end_after_a_lost_node(clock, monkeypatch, tmp_path, trouble, keeper):
    """A job goes on without a node that an attached controller cannot reach, for hours."""
    made, _ = plugin([trouble], clock, patience=10, board=str(tmp_path), keeper=keeper)
    during, other = [], Board(str(tmp_path), "node2")
    monkeypatch.setattr(
        clock,
        "sleep",
        lambda seconds: during.append(other.has_silent_node()) or Clock.sleep(clock, seconds),
    )
    run(made, monkeypatch)
    assert during[0] and not other.has_silent_node()


def test_a_job_that_failed_on_another_node_shortens_the_retries(clock, monkeypatch, tmp_path):
    fail(tmp_path)
    made, _ = plugin([LOST], clock, patience=60, board=str(tmp_path))
    assert run(made, monkeypatch)["unreachable"] and clock.now < 8


def test_a_failure_of_another_node_between_two_tries_counts_at_once(clock, monkeypatch, tmp_path):
    made, commands = plugin([LOST], clock, patience=60, board=str(tmp_path))
    ask, sleep = made.ask, clock.sleep
    made.ask = lambda *given: (
        setattr(clock, "now", clock.now + 7) or ask(*given)
    )  # ssh waited for 7 s
    clock.sleep = lambda seconds: fail(tmp_path) or sleep(seconds)
    assert run(made, monkeypatch)["unreachable"] and commands == ["wait"]


def test_a_failure_is_posted_and_ends_the_others(monkeypatch, tmp_path):
    failed = answer(state="ended", reason="failed")
    assert run(plugin([failed], board=str(tmp_path))[0], monkeypatch) == failed
    assert failed_hosts(tmp_path) == ["node1"]
    made, commands = plugin([RUNNING, DONE], board=str(tmp_path))
    ask, peers = made.ask, []
    made.ask = lambda python, request, *_: (
        peers.append(getattr(request, "peer", False)) or ask(python, request, *_)
    )
    (tmp_path / "node1").rename(tmp_path / "node2")
    assert run(made, monkeypatch)["ended"] and commands == ["wait", "stop"]
    assert peers == [False, True], "the stop must have the reason peer"


def test_an_attached_controller_does_not_end_a_job_that_it_cannot_reach(
    clock, monkeypatch, tmp_path
):
    made, _ = plugin([LOST], clock, patience=10, board=str(tmp_path), keeper=False)
    assert run(made, monkeypatch)["unreachable"] and failed_hosts(tmp_path) == []


def test_notes_of_an_earlier_run_are_ignored(monkeypatch, tmp_path):
    """Each run of ansible-playbook has its own folder."""
    for number in (1, 2):
        monkeypatch.setattr(action.C, "DEFAULT_LOCAL_TMP", str(tmp_path / str(number)))
        made, commands = plugin([RUNNING, DONE], board="failed-job")
        run(made, monkeypatch)
        assert commands == ["wait"]
        fail(tmp_path / str(number) / "failed-job")


@pytest.mark.parametrize("trouble", [LOST, SUDO])
def test_a_lost_stop_is_repeated_by_the_next_wait(monkeypatch, tmp_path, trouble):
    fail(tmp_path)
    made, commands = plugin([RUNNING, trouble], board=str(tmp_path))
    assert run(made, monkeypatch) == RUNNING and commands == ["wait", "stop"]


class Node:
    """A connection to this machine that records commands; `becomes` sets Ansible's become."""

    transport = "local"

    def __init__(self, made, becomes=False, stdout="1000\n"):
        self.become, self.stdout, self.commands = becomes, stdout, []
        made._connection, made._low_level_execute_command = self, self.execute
        made._task.check_mode = False

    def fetch_file(self, path, into):
        shutil.copy(path, into)

    def execute(self, command, sudoable=True):
        self.commands.append((command, sudoable))
        if command == "id -u":
            return {"stdout": self.stdout, "rc": 0}
        return {"rc": subprocess.call(["sh", "-c", command]), "stderr": ""}


def waits(tmp_path, *answers, **options):
    """Return the plugin, its commands, the node, the archive there, and the target here."""
    there, into = tmp_path / "spool" / "j.tar", tmp_path / "collected" / "j" / "node1.tar"
    there.parent.mkdir()
    there.write_bytes(b"what is left")
    made, commands = plugin(
        [DONE, *answers], output="/jobs/j/collected.tar", spool=str(there.parent), into=str(into)
    )
    node = Node(made, **options)
    return made, commands, node, there, into


def packed(there, **others):
    found = {"output": str(there), "bytes": 12, "files": 1, "spooled": True}
    return {**found, "left": [], "problem": None, **others}


def test_the_archive_is_fetched_at_the_end_and_removed_there(monkeypatch, tmp_path):
    made, commands, node, there, into = waits(tmp_path)
    answers, seen, ask = [DONE, packed(there)], [], made.ask
    made.ask = lambda python, request, *_: (
        seen.append(request) or ask(python, request) and answers.pop(0)
    )
    result = run(made, monkeypatch)
    assert commands == ["wait", "collect"] and result["ended"] and result["packed"] == packed(there)
    assert seen[1].reason == "done"
    assert into.read_bytes() == b"what is left" and not there.exists()


def test_the_last_poll_also_collects_the_files(monkeypatch, tmp_path):
    """A command less for each node of a job."""
    made, commands, node, there, into = waits(tmp_path)
    seen, ask = [], made.ask
    made.ask = lambda python, request, *_: (
        seen.append(request) or dict(ask(python, request), collected=packed(there))
    )
    result = run(made, monkeypatch)
    assert commands == ["wait"] and "collected" not in result
    assert seen[0].collect.output == "/jobs/j/collected.tar"
    assert result["packed"] == packed(there) and into.read_bytes() == b"what is left"


def test_no_node_fills_the_disk_of_the_controller(monkeypatch, tmp_path):
    """The archive needs space twice, since the controller unpacks it."""
    made, _, node, there, into = waits(tmp_path, packed(there=tmp_path / "spool" / "j.tar"))
    disk = types.SimpleNamespace(f_bavail=5, f_frsize=4)
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    monkeypatch.setattr(node, "fetch_file", lambda path, into: pytest.fail("fetched"))
    result = run(made, monkeypatch)
    assert result["failed"] and "has 12 bytes" in result["msg"] and "20 bytes are" in result["msg"]


def test_the_nodes_share_the_disk_of_the_controller(monkeypatch, tmp_path):
    """Each of three nodes fits alone, and their forks see the same free space."""
    monkeypatch.setattr(action.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    assert [action.reserve("node1", 45, 100), action.reserve("node2", 45, 100)] == [100, 10]
    assert action.reserve("node3", 5, 100) == 10  # node2 did not fit, and reserved nothing
    assert action.reserve("node1", 45, 100) == 90  # again, after a lost connection
    assert action.reserve("node4", 1, 100) == 0


def test_a_node_sends_no_more_than_it_has_announced(monkeypatch, tmp_path):
    made, _, node, there, into = waits(tmp_path, packed(there=tmp_path / "spool" / "j.tar"))
    monkeypatch.setattr(action, "FETCHED", 1000)
    there.write_bytes(b"x" * 5000)
    sizes = []

    def fetch_file(path, into):
        try:
            subprocess.run(["cp", path, into], check=True)
        except subprocess.CalledProcessError as error:
            sizes.append(os.path.getsize(into))
            raise AnsibleError(str(error)) from error

    monkeypatch.setattr(node, "fetch_file", fetch_file)
    result = run(made, monkeypatch)
    assert result["failed"] and sizes == [1000] and not into.parent.joinpath("node1.tar").exists()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_an_archive_of_the_user_stays_on_the_node(monkeypatch, tmp_path):
    made, _, node, there, into = waits(
        tmp_path, packed(tmp_path / "spool" / "j.tar", spooled=False)
    )
    run(made, monkeypatch)
    assert into.exists() and there.exists() and node.commands == []


@pytest.mark.parametrize(
    "answer, failure",
    [
        (BROKEN, {"failed": True, "msg": BROKEN["msg"]}),
        (LOST, {"unreachable": True, "msg": str(LOST)}),
        ({"output": "/nowhere", "bytes": 12, "spooled": True}, {"failed": True}),
        ({"bytes": 13}, {"failed": True}),
    ],
    ids=["not packed", "lost", "not there", "cut off"],
)
def test_the_job_has_ended_although_no_archive_could_be_fetched(
    monkeypatch, tmp_path, answer, failure
):
    if isinstance(answer, dict) and "bytes" in answer:
        answer = packed(tmp_path / "spool" / "j.tar", **answer)
    made, _, _, there, into = waits(tmp_path, answer)
    result = run(made, monkeypatch)
    assert there.exists(), "the archive must stay"
    assert result["ended"] and result["status"] == DONE["status"] and not into.exists()
    assert result["packed"] == (answer if isinstance(answer, dict) and "bytes" in answer else {}), (
        "root's observations count"
    )
    assert {name: result[name] for name in failure} == failure and result["msg"]


@pytest.mark.parametrize("where", ["who logs in", "collect"])
def test_a_connection_lost_during_a_fetch_is_tried_again(clock, monkeypatch, tmp_path, where):
    made, commands, node, there, into = waits(tmp_path, becomes=True)
    answers, troubles = (
        [DONE] + [LOST] * (where == "collect") + [packed(there)],
        [LOST, LOST] * (where != "collect"),  # for the last poll, and for the first fetch
    )

    def ask(python, request, *_):
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


def test_a_connection_that_stays_lost_during_a_fetch_keeps_the_status(clock, monkeypatch, tmp_path):
    made, commands = plugin(
        [DONE, LOST], clock, into=str(tmp_path / "x.tar"), output="/jobs/j/x.tar", patience=1000
    )
    Node(made)
    result = run(made, monkeypatch)
    assert result["unreachable"] and result["status"] == DONE["status"] and clock.now < 60, commands


@pytest.mark.parametrize(
    "becomes, stdout, reader",
    [(True, "1000\r\n", 1000), (True, "", None), (False, "1000\n", None)],
)
def test_the_login_user_is_asked_if_ansible_becomes_another_user(
    monkeypatch, tmp_path, becomes, stdout, reader
):
    made, _, node, there, _ = waits(tmp_path, becomes=becomes, stdout=stdout)
    answers, seen = [DONE, packed(there)], []
    made.ask = lambda python, request, *_: seen.append(request) or answers.pop(0)
    run(made, monkeypatch)
    assert seen[1].reader == reader and (("id -u", False) in node.commands) == becomes
    assert all(not sudoable for command, sudoable in node.commands if command == "id -u")


@pytest.mark.parametrize("stdout", ["0\n", ""])
def test_the_login_user_is_asked_once_a_job(monkeypatch, tmp_path, stdout):
    """Also if it is root, or if the node does not tell."""
    made, commands, node, there, _ = waits(tmp_path, becomes=True, stdout=stdout)
    answers = [RUNNING, RUNNING, dict(DONE, collected=packed(there))]
    made.ask = lambda python, request, *_: commands.append(request.KIND) or answers.pop(0)
    for _ in range(3):
        run(made, monkeypatch)
    assert commands == ["wait"] * 3 and node.commands.count(("id -u", False)) == 1


def on_node(execute, pipelining=True, check=False):
    """Return the plugin on a node that runs `execute(program, in_data)`, and its steps of files."""
    made, steps = object.__new__(action.ActionModule), []
    made._task = types.SimpleNamespace(check_mode=check)
    made._play_context = types.SimpleNamespace(no_log=False)
    made._connection = mock.Mock(transport="ssh", **{"_shell.join_path": os.path.join})
    made._is_pipelining_enabled = lambda *style: pipelining
    made._make_tmp_path = lambda: steps.append("made") or "/tmp/of ansible"
    made._transfer_data = lambda path, data: steps.append((path, json.loads(data)["command"]))
    made._fixup_perms2 = lambda paths, execute: steps.append(paths)
    made._remove_tmp_path = lambda path, force: steps.append("removed " + path)
    made._low_level_execute_command = execute
    return made, steps


def result_of(answer, command, code=0, check=False, **given):
    """Run a command whose program on the node prints `answer`; return (result, programs run)."""
    out, ran = "a shell says hello\n%s\n" % json.dumps(answer), []

    def execute(program, in_data):
        ran.append((program, json.loads(in_data), made._play_context.no_log))
        return {"rc": code, "stdout": out, "stderr": ""}

    made, _ = on_node(execute, check=check)
    request = COMMANDS[command].decode(dict({"job_dir": "/jobs/j"}, **given))
    return made.ask("/env/bin/python", request, {"inventory_hostname": "node1"}), ran


def test_an_invalid_answer_is_a_failure():
    """A process of the training user may write the answer; all commands check it in one place."""
    answer, _ = result_of({"jobs": [], "units": "{{ 1 }}"}, "jobs", jobs_dir="/jobs")
    assert answer["failed"]
    assert "the answer of node1 to the command jobs is invalid: units='{{ 1 }}'" in answer["msg"]
    assert is_unsafe(answer["msg"])
    fine = {
        "problems": ["{{ lookup('pipe', 'touch evil') }}"],
        "held": {"ports": {"9091": "{{ x }}"}, "gpus": {}},
        "fits": True,
    }
    answer, _ = result_of(fine, "look")
    assert answer == dict(fine, changed=False) and is_unsafe(answer["problems"][0])
    assert is_unsafe(answer["held"]["ports"]["9091"])
    answer = result_of({"record": {"hostname": "", "gpus": 2, "evil": 1}}, "record")[0]
    assert answer == {"record": NodeFacts(gpus=2).encode(), "changed": False}


def test_secrets_are_in_no_command_line_and_no_answer():
    given = {"plan": part_json(job="j"), "secret_env": {"K": "hush"}, "token": "tok"}
    _, [(program, request, _)] = result_of({"job": "j", "status": None}, "start", **given)
    assert program == "/env/bin/python -I -m mxcluster.entry"
    assert {name: request[name] for name in (*given, "check")} == dict(given, check=False)
    answer, _ = result_of(
        {"error": "the agent did not start: K=hush, tok"}, "start", code=1, **given
    )
    assert answer["failed"] and "hush" not in str(answer) and "tok" not in answer["msg"]
    assert "did not start" in answer["msg"]


@pytest.mark.parametrize("command", ["start", "wait", "stop", "collect", "piece"])
def test_check_mode_runs_no_changing_command(command):
    answer, ran = result_of({}, command, check=True, output="/jobs/j.tar", file="model-0001.params")
    assert ran == []
    assert answer["msg"] == "check mode: mxcluster did not run the command %s" % command


def test_a_short_secret_does_not_garble_the_answer():
    given = {"plan": part_json(), "secret_env": {"DEBUG": "1"}, "job_dir": "/jobs/job-1"}
    answer, _ = result_of({"job": "job-1", "status": None}, "start", **given)
    assert answer == {"job": "job-1", "status": None, "changed": True}


@pytest.mark.parametrize(
    "given, hidden", [({}, False), ({"token": "tok"}, True), ({"secret_env": {"K": "hush"}}, True)]
)
def test_answers_to_a_secret_are_hidden_from_ansibles_output(given, hidden):
    """Ansible's ssh shows all output at -vvv."""
    _, [(_, _, no_log)] = result_of({"job": "j", "status": None}, "start", **given)
    assert no_log is hidden


def look_with_login(stdout, pipelining):
    """Return (result, programs run, steps of files) of a look at a node that prints `stdout`."""
    ran = []

    def execute(program, in_data=None):
        ran.append(program)
        if isinstance(stdout, Exception):
            raise stdout
        return {"rc": 0, "stdout": stdout, "stderr": ""}

    made, steps = on_node(execute, pipelining)
    wanted = Connection(users=["root"], trainer="mx")
    task_vars = {"inventory_hostname": "node1", "ansible_python_interpreter": "/p"}
    return made.ask("/p", Look(), task_vars, wanted), ran, steps


LOGIN = "mxcluster-user=%s\nmxcluster-uid=%d\nmxcluster-python=/p\nmxcluster-end=\n"
FITS = {
    "problems": [],
    "held": {"ports": {"9091": "comm mxcluster-user=joe"}, "gpus": {}},
    "fits": True,
}


@pytest.mark.parametrize("pipelining", [True, False])
def test_a_look_needs_one_command(pipelining):
    answer, ran, _ = look_with_login(LOGIN % ("root", 0) + json.dumps(FITS), pipelining)
    assert answer == dict(FITS, changed=False)
    assert [program.endswith("/p -I -m mxcluster.entry") for program in ran][0] is pipelining
    assert len(ran) == (1 if pipelining else 2)


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize(
    "stdout, words",
    [
        (LOGIN % ("joe", 1000) + json.dumps(FITS), "but this playbook needs root"),
        (LOST, "node1 (node1, port 22): cannot reach the node (ssh: connect to host 10.0.0.1"),
    ],
)
def test_a_look_without_a_login_fails_with_the_remedy(pipelining, stdout, words):
    answer, _, steps = look_with_login(stdout, pipelining)
    assert answer["failed"] and words in answer["msg"] and not steps, answer


def test_without_pipelining_a_file_has_the_request():
    ran = []

    def execute(program, in_data=None):
        ran.append((program, in_data is None))
        return {"rc": 0, "stdout": json.dumps({"ran": False, "status": None}), "stderr": ""}

    made, steps = on_node(execute, pipelining=False)
    made.ask("~/env/bin/python", Stop(job_dir="/j"), {"inventory_hostname": "node1"})
    file, entry = "/tmp/of ansible/request.json", "~/env/bin/python -I -m mxcluster.entry"
    assert ran == [(entry + " < '%s'" % file, True)]
    assert steps == ["made", (file, "stop"), ["/tmp/of ansible", file], "removed /tmp/of ansible"]


@pytest.mark.parametrize("answer, leaves", [(BROKEN, True), (DONE, True), (RUNNING, False)])
def test_the_role_leaves_the_loop_after_a_failure(answer, leaves):
    """Ansible evaluates the condition, and a failed result has no `ended`."""
    tasks = yaml.safe_load((PROJECT / "roles" / "train_job" / "tasks" / "follow.yml").read_text())
    until = next(
        task["until"] for block in tasks for task in block.get("block", []) if "until" in task
    )
    variables = {"__train_job_wait": dict({"failed": False}, **answer)}
    assert str(templated("{{ %s }}" % until, variables)) == str(leaves)


@pytest.mark.parametrize(
    "started, done",
    [
        ({"job": "one", "pid": 7}, ["mxcluster_node", "mxcluster_file"]),
        (
            {"failed": False, "msg": "another controller has just started the job one"},
            ["ansible.builtin.fail"],
        ),
        ({"unreachable": True}, ["ansible.builtin.fail"]),
    ],
)
def test_a_refused_start_undoes_nothing_on_that_node(started, done):
    """The folder of that name may be another controller's job, and only its owner ends it."""
    tasks = yaml.safe_load((PROJECT / "roles" / "train_job" / "tasks" / "undo.yml").read_text())
    variables = yaml.safe_load((PROJECT / "roles" / "train_job" / "vars" / "main.yml").read_text())
    known = {"__train_job_begun": variables["__train_job_begun"]}
    known.update(__train_job_started=started, __train_job_queues=False)
    runs = [
        task
        for task in tasks
        if str(templated("{{ %s }}" % task.get("when", "true"), known)) == "True"
    ]
    assert [
        name for task in runs for name in task if name.startswith(("mxcluster_", "ansible."))
    ] == done


def offering(tmp_path):
    """Return the folder of a node with a checkpoint, and the answer that offers the checkpoint."""
    (tmp_path / "node").mkdir()
    save(tmp_path / "node", 1, servers=1)
    return tmp_path / "node", offer(tmp_path / "node", "mlp-0001")


def offer(there, held):
    """Return the answer that offers the checkpoint `held` of the folder `there`."""
    parts = {path.name: path.read_text() for path in there.glob("*.json")}
    return dict(RUNNING, checkpoints={"held": held, "parts": parts})


def test_checkpoints_are_fetched_between_two_waits(monkeypatch, tmp_path):
    """The controller asks for pieces, and tells the module only the name of the last checkpoint."""
    there, answer = offering(tmp_path)
    here, waits = tmp_path / "runs" / "j" / "checkpoints", []
    made, commands = plugin(
        [answer], patience=60, checkpoints={"folder": str(here), "keep": 3, "plan": {"job": "j"}}
    )
    made._task.check_mode = False

    def ask(python, request, *_):
        commands.append(request.KIND)
        if request.KIND == "wait":
            waits.append(request)
            return dict(answer)
        data = (there / request.file).read_bytes()[request.offset :][: request.most]
        return {"data": base64.b64encode(data).decode()}

    made.ask = ask
    assert run(made, monkeypatch) == RUNNING and commands == ["wait", "piece", "piece"]
    assert run(made, monkeypatch) == RUNNING and commands[3:] == ["wait"]
    assert [wait.took for wait in waits] == ["", "mlp-0001"]
    assert {path.name for path in here.glob("mlp-*")} == {path.name for path in there.glob("mlp-*")}
    assert json.loads((here.parent / "plan.json").read_text()) == {"job": "j"}


def test_a_damaged_file_of_an_earlier_checkpoint_is_taken_once(monkeypatch, tmp_path):
    """Each attempt has a new plugin. The first one finds an equal file that is damaged here."""
    there, here = tmp_path / "node", tmp_path / "runs" / "j" / "checkpoints"
    there.mkdir()
    here.mkdir(parents=True)
    save_files(here, "worker-0", 1, weights="wwww")
    (here / "worker-0-0001" / "weights").write_text("wwxw")
    save_files(there, "worker-0", 2, weights="wwww")
    answer = offer(there, "worker-0-0002")
    wanted = {"folder": str(here), "keep": 3, "plan": {"job": "j"}}
    task = None

    def ask(python, request, *_):
        if request.KIND == "wait":
            return dict(answer)
        data = (there / request.file).read_bytes()[request.offset :][: request.most]
        return {"data": base64.b64encode(data).decode()}

    for _ in range(3):
        made, _ = plugin([answer], patience=60, checkpoints=wanted)
        made._task, made.ask = task or made._task, ask
        task, made._task.check_mode = made._task, False
        assert run(made, monkeypatch) == RUNNING
    assert (here / "worker-0-0002.json").exists()
    assert (here / "worker-0-0002" / "weights").read_text() == "wwww"


@pytest.mark.parametrize("trouble", ["connection", "disk"])
def test_a_checkpoint_that_cannot_be_fetched_does_not_end_the_job(monkeypatch, tmp_path, trouble):
    (tmp_path / "file").write_text("")
    folder = tmp_path / ("file" if trouble == "disk" else "checkpoints")
    wanted = {"folder": str(folder), "keep": 3, "plan": {}}
    made, commands = plugin([offering(tmp_path)[1], LOST], checkpoints=wanted)
    made._task.check_mode, warned = False, []
    monkeypatch.setattr(action.display, "warning", warned.append)
    assert run(made, monkeypatch) == RUNNING and commands[0] == "wait"
    assert len(warned) == 1 and "node1: cannot fetch the checkpoint" in warned[0]


@pytest.mark.parametrize("command", ["start", "prepare"])
def test_a_start_sends_the_controllers_process_and_the_token(monkeypatch, tmp_path, command):
    monkeypatch.setattr(action.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    made, _ = plugin([{"job": "j"}], command=command, plan=part_json(job="j"), job_dir="/jobs/j")
    made._connection, sent = types.SimpleNamespace(become=None), []
    made.ask = lambda python, request, *_: sent.append(request) or {"job": "j"}
    assert run(made, monkeypatch) == {"job": "j"} and made._task.args["plan"] == part_json(job="j")
    assert sent[0].plan == part_of(job="j", controller=processes.witness(os.getppid()).encode())
    assert sent[0].token == action.token_of("j") and "token" not in made._task.args


def test_a_worker_that_finished_early_is_seen_by_its_own_node(tmp_path, monkeypatch):
    """The last answers of all nodes decide, once the state has lasted for a while.

    A node's answer stays valid without a repetition.
    """
    board, together, clock = tmp_path / "board", [[0, 1]], []
    monkeypatch.setattr(board_module.time, "time", lambda: clock[-1])

    def tell(now, host, idle, **processes):
        clock.append(now)
        pulses = {
            name.replace("_", "-"): LatestPulse(phase=phase, pushes=pushes, time=1.0, idle=idle)
            for name, (phase, pushes) in processes.items()
        }
        return Board(str(board), host).blocking_worker(pulses, together)

    waits, done = {"worker_0": ("training", 8)}, {"worker_1": ("finished", 6)}
    assert tell(100, "node1", 3.0, **waits) is None
    assert tell(100, "node2", 3.5, **done) is None
    assert (
        tell(102.1, "node2", 5.6, **done) == "worker-1"
    )  # node1 was seen waiting 2.1 s ago, for 3 s
    assert tell(102.1, "node1", 5.1, **waits) is None  # the worker is node2's
    assert tell(103, "node1", 0.0, **waits) is None
    assert (
        tell(103, "node2", 6.5, **done) is None
    )  # node1's worker calls its store, so it does not wait
    assert tell(108, "node1", 5.0, server_0=("updating", 0), **waits) is None
    # Another process of node1 does not matter.
    assert tell(108, "node2", 11.5, **done) == "worker-1"
    together.clear()
    assert tell(109, "node2", 12.5, **done) is None and failed_hosts(board) == []


@pytest.mark.parametrize(
    "answer, known, words",
    [
        ({"problems": [], "held": {}}, [], None),
        (
            {"problems": ["no /data\x1b[2J\nFAKE"]},
            ["its paths have moved"],
            "no /data FAKE\nits paths have moved",
        ),
        ({"failed": True, "msg": "no Python"}, ["its paths have moved"], "no Python"),
    ],
)
def test_a_look_fails_for_a_nodes_problems(answer, known, words, monkeypatch):
    made, commands = plugin([answer], command="look", problems=known, user="mxcluster")
    result = run(made, monkeypatch)
    assert commands == ["look"] and result.get("msg") == words, result
    assert bool(result.get("failed")) == bool(words), result


@pytest.mark.parametrize("user, shown", [("mxcluster", ["node1: no nft"]), ("", [])])
def test_a_look_shows_ports_without_a_firewall(user, shown, monkeypatch):
    """Without a training user, no program can close them, and the plan says so."""
    made, _ = plugin(
        [{"problems": [], "ports_open": "no nft"}], command="look", user=user, problems=[]
    )
    seen = []
    monkeypatch.setattr(action.display, "display", seen.append)
    assert not run(made, monkeypatch).get("failed") and seen == shown


def test_all_forks_have_the_same_token_of_a_job(monkeypatch, tmp_path):
    """Also on a file system without hard links, and if the first fork is slow."""
    monkeypatch.setattr(action.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(
        os, "link", mock.Mock(side_effect=PermissionError(1, "Operation not permitted"))
    )
    make = action.secrets.token_hex
    monkeypatch.setattr(action.secrets, "token_hex", lambda length: time.sleep(0.1) or make(length))
    readers, forks = [], []
    for _ in range(8):
        read, write = os.pipe()
        forks.append(os.fork())
        if forks[-1] == 0:
            try:
                os.write(write, action.token_of("job").encode())
            finally:
                os._exit(0)
        os.close(write)
        readers.append(os.fdopen(read))
    tokens = {reader.read() for reader in readers}
    for fork in forks:
        os.waitpid(fork, 0)
    (token,) = tokens
    assert len(token) == 64 and action.token_of("another") != token
    assert sorted(os.listdir(str(tmp_path))) == ["token-another", "token-job"]
    assert all(
        os.stat(str(tmp_path / name)).st_mode & 0o777 == 0o600 for name in os.listdir(str(tmp_path))
    )


@pytest.mark.parametrize(
    "arguments, words",
    [
        (
            {"into": "/tmp/x.tar"},
            "command=collect needs output: add the missing arguments to the task",
        ),
        ({"job_dir": "jobs/j"}, "job_dir='jobs/j' is not an absolute path, or a path that begins"),
    ],
)
def test_a_missing_or_invalid_argument_is_refused(arguments, words, monkeypatch):
    made, commands = plugin([RUNNING], **arguments)
    result = run(made, monkeypatch)
    assert result["failed"] and result["msg"].startswith(words) and commands == [], result


def test_each_attempt_to_follow_logs_begins_at_the_end_of_the_last(monkeypatch):
    """Ansible makes a new plugin for each attempt of a task."""
    made, _ = plugin([], command="logs", seconds=2, only=["worker-0"])
    other, _ = plugin([])
    other._task, asked = made._task, []

    def ask(python, request, *_):
        asked.append(request)
        number = len(asked)
        return {
            "logs": {"worker-0": ["line %d\x1b" % number], "agent": []},
            "offsets": {"worker-0": 7 * number, "agent": 0},
            "ended": number == 2,
            "changed": False,
        }

    made.ask, other.ask, shown = ask, ask, []
    monkeypatch.setattr(action.display, "display", shown.append)
    first, second = run(made, monkeypatch), run(other, monkeypatch)
    assert [request.offsets for request in asked] == [None, {"worker-0": 7, "agent": 0}]
    assert asked[0].only == ["worker-0"] and not first["ended"] and second["ended"]
    assert shown == ["  node1/worker-0 | line 1", "  node1/worker-0 | line 2"]


def test_logs_without_a_wait_are_not_shown_at_once(monkeypatch):
    made, _ = plugin([{"logs": {"agent": ["x"]}, "offsets": {}, "ended": True}], command="logs")
    shown = []
    monkeypatch.setattr(action.display, "display", shown.append)
    assert run(made, monkeypatch)["logs"] == {"agent": ["x"]} and not shown


def test_all_attempts_of_a_wait_write_one_file_for_tensorboard(monkeypatch, tmp_path):
    """A file for each attempt would be thousands in a long job."""
    made, added = [], []

    class Curves:
        def __init__(self, folder):
            made.append(folder)

        def add(self, latest):
            added.append(latest.batch.step)

    monkeypatch.setattr(action.exports, "LiveCurves", Curves)
    batch = {"event": "batch", "time": 5.0, "step": 3, "loss": 0.5}
    known = dict(RUNNING, progress={"worker-0": {"batch": batch}})
    first, _ = plugin([known], tensorboard=str(tmp_path))
    second, _ = plugin([known])
    second._task = first._task
    for one in (first, second):
        one._task.check_mode = False
        run(one, monkeypatch)
    assert made == [str(tmp_path / "worker-0")] and added == [3, 3]
