"""Parts of the callback without a playbook around them."""
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture
def plugin():
    """The plugin's Python module."""
    path = Path(__file__).parents[4] / "plugins" / "callback" / "mxcluster.py"
    spec = importlib.util.spec_from_file_location("callback_mxcluster", str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Clock:
    """Stands for the module `time`."""

    def __init__(self, now):
        self.now = now

    def time(self):
        return self.now


@pytest.fixture
def job(plugin, monkeypatch):
    """A callback in the middle of a task of two hosts, and a function that gives it a poll's result."""
    monkeypatch.setattr(plugin, "time", Clock(1000.0))
    callback = plugin.CallbackModule()
    shown = []
    callback._display = SimpleNamespace(display=lambda text, **_: shown.append(text), verbosity=0)
    monkeypatch.setattr(callback, "get_option", lambda name: False)
    task = SimpleNamespace(_uuid="1", action="mxcluster_node")
    callback._last_task_banner = "1"
    hosts = {name: SimpleNamespace(get_name=lambda name=name: name) for name in ("node1", "node2")}
    for host in hosts.values():
        callback.v2_runner_on_start(host, task)

    def poll(host, now, step):
        plugin.time.now = now
        status = {"host": host, "kv": None, "started": 990.0, "processes": [
            {"name": "worker-%s" % host[-1], "role": "worker", "index": int(host[-1]), "state": "running"}]}
        progress = {"worker-%s" % host[-1]: {"batch": {"step": step, "epoch": 0, "time": now}}}
        answer = {"status": status, "progress": progress}
        callback.v2_runner_retry(SimpleNamespace(_host=hosts[host], _task=task, _result=answer))
    return SimpleNamespace(callback=callback, poll=poll, shown=shown, hosts=hosts, task=task)


def test_where_no_line_can_be_rewritten_one_comes_every_five_seconds(job):
    for tenth in range(0, 130, 5):
        for host in ("node1", "node2"):
            job.poll(host, 1000 + tenth / 10, tenth)
    assert job.shown == ["epoch 1/1  step 45", "epoch 1/1  step 95"]
    job.callback._settle()
    job.callback._settle()
    assert job.shown[2:] == ["epoch 1/1  step 125"], "the last one is always shown, and once"


def test_a_host_that_is_lost_is_not_waited_for(job):
    job.poll("node1", 1001, 1)
    task = SimpleNamespace(_uuid="1", action="x", delegate_to=None, ignore_unreachable=False, loop=None)
    job.callback.v2_runner_on_unreachable(SimpleNamespace(
        _host=job.hosts["node2"], _task=task, _result={"unreachable": True, "msg": "no route\nto host"}))
    job.poll("node1", 1006, 8)
    assert job.shown == ["starting: 1 of 2 nodes have answered", "fatal: [node2]: UNREACHABLE!\n  no route\n  to host",
                         "epoch 1/1  step 8"]


def test_of_many_hosts_the_first_are_named(job):
    for number in range(10):
        host = SimpleNamespace(get_name=lambda number=number: "n%d" % number)
        task = SimpleNamespace(_uuid="1", delegate_to=None)
        job.callback._gather(SimpleNamespace(_host=host, _result={}, _task=task), "ok", None)
    job.callback._settle()
    assert job.shown == ["ok: [n0], [n1], [n2], [n3], [n4], [n5], [n6], [n7] and 2 more"]


@pytest.mark.parametrize("result, expected", [
    ({"msg": "one\n  two\n", "invocation": {"module_args": {"x": 1}}, "changed": False}, ["one", "  two"]),
    ({"msg": ["a", "b"]}, ["['a', 'b']"]),
    ({"censored": "hidden by no_log", "changed": False}, ["hidden by no_log"]),
    ({"msg": "non-zero return code", "cmd": ["ls", "/x"], "rc": 2, "stdout": "", "stderr": "a\r\nb",
      "stderr_lines": ["a", "b"]},
     ["non-zero return code", "cmd: ls /x", "rc: 2", "stderr: a", "  b"]),
    ({"msg": "MODULE FAILURE", "module_stdout": "", "module_stderr": "Traceback\nValueError: x", "rc": 1},
     ["MODULE FAILURE", "rc: 1", "module_stderr: Traceback", "  ValueError: x"]),
    ({"changed": False}, []),
], ids=["lines", "list", "no_log", "command", "crash", "nothing"])
def test_a_failure_tells_its_message_in_lines_of_its_own(plugin, result, expected):
    assert plugin.failure_lines(result) == expected


def test_of_long_output_the_end_is_kept(plugin):
    lines = plugin.failure_lines({"msg": "m", "stderr": "\n".join(map(str, range(100)))})
    assert lines[1:3] == ["stderr: 80", "  81"] and lines[-1] == "  99"


RESTART = {"text": "RESTART   job mine-r1", "extra": {"resume": "mine", "without": ["node3"]}, "delay": 7}


@pytest.fixture
def again(job, plugin, monkeypatch, tmp_path):
    """A callback that has heard of the next attempt, a command line that can be given again, and what becomes of it."""
    program, done = tmp_path / "ansible-playbook", []
    program.write_text("")
    (tmp_path / "local").mkdir()
    monkeypatch.setattr(plugin.sys, "argv", [str(program), "train.yml", "-e", "kv=local"])
    monkeypatch.setattr(plugin.context, "CLIARGS", {"vault_ids": ["@file"]})
    monkeypatch.setattr(plugin.C, "DEFAULT_LOCAL_TMP", str(tmp_path / "local"))
    monkeypatch.setattr(plugin.time, "sleep", lambda seconds: done.append(seconds), raising=False)
    monkeypatch.setattr(plugin.os, "execv", lambda program, argv: done.append(argv))
    monkeypatch.setattr(plugin.Default, "v2_playbook_on_stats", lambda self, stats: None)
    monkeypatch.setattr(plugin.CallbackModule, "_gather", lambda self, *_: None)

    def hear(restart=RESTART, action="mxcluster_report"):
        job.callback.v2_runner_on_ok(SimpleNamespace(_task=SimpleNamespace(action=action), _result={"restart": restart}))
        job.callback.v2_playbook_on_stats(None)
        return done
    monkeypatch.setattr(plugin.CallbackModule, "_run_is_verbose", lambda self, result: False)
    monkeypatch.setattr(job.callback, "get_option", lambda name: True)
    return SimpleNamespace(hear=hear, shown=job.shown, tmp=tmp_path)


def test_the_next_attempt_is_the_same_command_line(again, plugin):
    seconds, argv = again.hear()
    assert seconds == 7 and argv[:2] == [plugin.sys.executable, str(again.tmp / "ansible-playbook")]
    assert argv[2:-1] == ["train.yml", "-e", "kv=local", "-e"] and plugin.json.loads(argv[-1]) == RESTART["extra"]
    assert again.shown == [RESTART["text"]] and not (again.tmp / "local").exists()


@pytest.mark.parametrize("restart,action", [(dict(RESTART, extra=None), "mxcluster_report"), (None, "mxcluster_report"),
                                            (RESTART, "mxcluster_node")])
def test_what_is_not_to_be_or_comes_from_a_node_starts_nothing(again, restart, action):
    assert again.hear(restart, action) == []
    assert again.shown == ([RESTART["text"]] if restart and action == "mxcluster_report" else [])


@pytest.mark.parametrize("options", [{"ask_pass": True}, {"become_ask_pass": True}, {"ask_vault_pass": True},
                                     {"vault_ids": ["mine@prompt"]}])
def test_a_password_that_would_be_asked_for_again(again, plugin, monkeypatch, options):
    monkeypatch.setattr(plugin.context, "CLIARGS", options)
    assert again.hear() == [] and "a password would have to be typed again" in again.shown[0]


class Result(object):
    """As ansible-core 2.19 and later give it: what it holds cannot be replaced."""

    _host, _task, _result = None, SimpleNamespace(action="debug"), property(lambda self: self.answer)

    def __init__(self, **answer):
        self.answer = answer


def test_every_ansible_shows_what_is_harmless(plugin):
    result, shown = Result(msg="\x1b[2Jgone", rest=["\x1b]0;t\x07"]), []
    plugin.of_harmless(lambda self, result: shown.append(dict(result._result)))(None, result)
    assert shown == [{"msg": "gone", "rest": [""]}] == [result.answer]
