"""Single methods of the callback, without a playbook."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.playbook.block import Block


@pytest.fixture
def plugin():
    """Return the plugin's Python module."""
    path = Path(__file__).parents[4] / "plugins" / "callback" / "mxcluster.py"
    spec = importlib.util.spec_from_file_location("callback_mxcluster", str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Clock:
    """Replace the module `time`."""

    def __init__(self, now):
        self.now = now

    def time(self):
        return self.now


def result_of(host, task, answer):
    """Return a result of a task. ansible-core 2.19 and newer have names without an underscore."""
    return SimpleNamespace(
        _host=host, host=host, _task=task, task=task, _result=answer, result=answer
    )


@pytest.fixture
def job(plugin, monkeypatch):
    """Return a callback in a task of two hosts, with a function `poll` that passes a result."""
    monkeypatch.setattr(plugin, "time", Clock(1000.0))
    callback = plugin.CallbackModule()
    shown, logged = [], []

    def display(text, screen_only=False, log_only=False, **_):
        shown.extend([] if log_only else [text])
        logged.extend([] if screen_only else [text])

    callback._display = SimpleNamespace(display=display, verbosity=0)
    monkeypatch.setattr(callback, "get_option", lambda name: False)
    task = SimpleNamespace(_uuid="1", action="mxcluster_node", tags=[])
    callback._last_task_banner = "1"
    hosts = {name: SimpleNamespace(get_name=lambda name=name: name) for name in ("node1", "node2")}
    for host in hosts.values():
        callback.v2_runner_on_start(host, task)

    def poll(host, now, step):
        plugin.time.now = now
        status = {
            "job": "j",
            "host": host,
            "agent": {"pid": 1, "start_time": 1},
            "kv": None,
            "started": 990.0,
            "processes": [
                {
                    "name": "worker-%s" % host[-1],
                    "role": "worker",
                    "index": int(host[-1]),
                    "state": "running",
                }
            ],
        }
        progress = {"worker-%s" % host[-1]: {"batch": {"step": step, "epoch": 0, "time": now}}}
        answer = {"status": status, "progress": progress}
        callback.v2_runner_retry(result_of(hosts[host], task, answer))

    return SimpleNamespace(
        callback=callback, poll=poll, shown=shown, logged=logged, hosts=hosts, task=task
    )


def test_without_a_terminal_a_line_comes_every_five_seconds(job):
    for tenth in range(0, 130, 5):
        for host in ("node1", "node2"):
            job.poll(host, 1000 + tenth / 10, tenth)
    assert job.shown == ["epoch 1  step 45", "epoch 1  step 95"]
    job.callback._settle()
    job.callback._settle()
    assert job.shown[2:] == ["epoch 1  step 125"], "the last line is always shown, and once"


def test_on_a_terminal_the_log_has_a_line_every_five_seconds(job, plugin, monkeypatch):
    monkeypatch.setattr(plugin, "rewritable", lambda stream: True)
    for tenth in range(0, 130, 5):
        for host in ("node1", "node2"):
            job.poll(host, 1000 + tenth / 10, tenth)
    assert job.logged == ["epoch 1  step 45", "epoch 1  step 95"] and not job.shown


def test_the_log_names_all_hosts_and_the_terminal_eight(job):
    for number in range(12):
        host = SimpleNamespace(get_name=lambda number=number: "h%d" % number)
        result = result_of(host, job.task, {})
        job.callback.host_label = lambda result: result._host.get_name()
        job.callback._gather(result, "ok", "green")
    job.callback._settle()
    assert job.shown == ["ok: %s and 4 more" % ", ".join("[h%d]" % number for number in range(8))]
    assert job.logged == ["ok: " + ", ".join("[h%d]" % number for number in range(12))]


def test_a_lost_host_does_not_delay_the_line(job):
    job.poll("node1", 1001, 1)
    task = SimpleNamespace(
        _uuid="1", action="x", delegate_to=None, ignore_unreachable=False, loop=None
    )
    job.callback.v2_runner_on_unreachable(
        result_of(job.hosts["node2"], task, {"unreachable": True, "msg": "no route\nto host"})
    )
    job.poll("node1", 1006, 8)
    assert job.shown == [
        "starting: 1 of 2 nodes have answered",
        "fatal: [node2]: UNREACHABLE!\n  no route\n  to host",
        "epoch 1  step 8",
    ]


@pytest.mark.parametrize(
    "result, expected",
    [
        (
            {"msg": "one\n  two\n", "invocation": {"module_args": {"x": 1}}, "changed": False},
            ["one", "  two"],
        ),
        (
            {
                "msg": "non-zero return code",
                "cmd": ["ls", "/x"],
                "rc": 2,
                "stdout": "",
                "stderr": "a\r\nb",
                "stderr_lines": ["a", "b"],
            },
            ["non-zero return code", "cmd: ls /x", "rc: 2", "stderr: a", "  b"],
        ),
        ({"changed": False}, []),
    ],
    ids=["lines", "command", "nothing"],
)
def test_a_failure_shows_its_message_in_separate_lines(plugin, result, expected):
    assert plugin.failure_lines(result) == expected


def test_long_output_is_cut_at_its_beginning(plugin):
    lines = plugin.failure_lines({"msg": "m", "stderr": "\n".join(map(str, range(100)))})
    assert lines[1:3] == ["stderr: 80", "  81"] and lines[-1] == "  99"


@pytest.fixture
def end(job, plugin, monkeypatch):
    """Return end(action, **result), which gives (exit status, last lines) of a callback."""
    recap = lambda self, stats: self._display.display("PLAY RECAP")  # noqa: E731
    monkeypatch.setattr(plugin.Default, "v2_playbook_on_stats", recap)
    monkeypatch.setattr(plugin.CallbackModule, "_gather", lambda self, *_: None)
    monkeypatch.setattr(plugin.CallbackModule, "_run_is_verbose", lambda self, result: False)
    monkeypatch.setattr(job.callback, "get_option", lambda name: True)

    def hear(action, **result):
        task = SimpleNamespace(action=action)
        job.callback.v2_runner_on_ok(SimpleNamespace(_task=task, _result=result))
        try:
            job.callback.v2_playbook_on_stats(None)
        except SystemExit as error:
            return error.code, job.shown
        return None, job.shown

    return hear


def test_after_a_restart_the_last_verdict_stands_alone(end):
    result = {"mxcluster_verdict_text": ["OK"], "mxcluster_exit_status": 0}
    assert end("mxcluster_restart", **result) == (0, ["OK"])


def test_a_node_cannot_set_the_verdict_or_the_exit_status(end):
    result = {"mxcluster_verdict_text": ["OK"], "mxcluster_exit_status": 0}
    assert end("mxcluster_node", **result) == (None, ["PLAY RECAP"])


def test_an_attempt_leaves_its_verdict_to_the_first_command(end, monkeypatch):
    monkeypatch.setenv("MXCLUSTER_ATTEMPT", "1")
    assert end("mxcluster_report", mxcluster_verdict_text=["OK"]) == (None, ["PLAY RECAP"])


class Result(object):
    """A result as in ansible-core 2.19 and later, whose content cannot be replaced."""

    _host, _task, _result = (
        None,
        SimpleNamespace(action="debug"),
        property(lambda self: self.answer),
    )

    def __init__(self, **answer):
        self.answer = answer


def test_control_characters_are_removed_under_every_ansible(plugin):
    result, shown = Result(msg="\x1b[2Jgone", rest=["\x1b]0;t\x07"]), []
    plugin.of_harmless(lambda self, result: shown.append(dict(result._result)))(None, result)
    assert shown == [{"msg": "gone", "rest": [""]}] == [result.answer]


@pytest.mark.parametrize(
    "tags, of_task, selected",
    [
        (("all",), [], True),
        (("cudda",), ["always"], False),
    ],
)
def test_a_task_with_the_tag_always_was_not_selected(plugin, tags, of_task, selected):
    assert plugin.is_selected(SimpleNamespace(tags=of_task), {"tags": tags}) == selected


def test_a_task_with_a_skipped_tag_is_not_selected(plugin):
    for skipped, selected in (("cuda", False), ("mxnet", True)):
        given = {"tags": ("all",), "skip_tags": (skipped,)}
        assert plugin.is_selected(SimpleNamespace(tags=["cuda"]), given) == selected


@pytest.mark.parametrize(
    "given, refused",
    [
        ({"tags": ("cuda",)}, False),
        ({"tags": ("cudda",)}, True),
        ({"start_at_task": "Install CUDA"}, True),  # no host has run it
    ],
)
def test_a_play_without_hosts_may_have_selected_tasks(plugin, monkeypatch, given, refused):
    """All nodes are unchanged, for example, so the play for changed nodes has no host."""
    monkeypatch.setattr(plugin.context, "CLIARGS", given)
    callback = plugin.CallbackModule()
    monkeypatch.setattr(callback, "get_option", lambda name: False)
    inner, outer = Block(), Block()
    inner.block, outer.block = [SimpleNamespace(tags=["cuda"])], [inner]
    play = SimpleNamespace(pre_tasks=[], tasks=[outer], post_tasks=[], get_name=lambda: "All")
    play.check_mode = False
    callback.v2_playbook_on_play_start(play)
    assert callback._matched is not refused


def test_a_task_that_writes_itself_shows_no_retries(job):
    """While logs.yml follows a job, each poll is a retry of its task."""
    task = SimpleNamespace(_uuid="1", action="mxcluster_node", args={"command": "logs"})
    job.callback.v2_runner_retry(result_of(job.hosts["node1"], task, {"logs": {}}))
    assert not job.shown
