"""The doorway to the agent: exact command lines with a fake run_command, and once for real."""
import importlib.util
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from tests import ansible_modules
from tests.training.environments import find_python

ROOT = Path(__file__).parents[4]
PATH = ROOT / "plugins" / "modules" / "mxcluster_node.py"
EVERYBODYS = "/usr/bin/python3"  # that of the tests may lie where only its owner gets to
AGENT = [sys.executable, "-m", "mxcluster.agent"]
RUNNING = {"status": {"state": "running"}, "progress": {"worker-0": {}}}


class Left(Exception):
    """The module has answered."""


@pytest.fixture
def module():
    spec = importlib.util.spec_from_file_location("mxcluster_node", str(PATH))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def play(module, monkeypatch):
    """play(answer, **params) runs the module with a node that answers so: (result, [(argv, options), ...])."""
    def run(answer, check=False, **params):
        calls, results = [], []

        class Fake:
            def __init__(self, argument_spec, required_if, supports_check_mode):
                assert supports_check_mode
                self.check_mode = check
                self.params = {name: params.get(name, spec.get("default")) for name, spec in argument_spec.items()}
                assert set(params) <= set(argument_spec)

            def run_command(self, argv, **options):
                calls.append((argv, options))
                return answer if isinstance(answer, tuple) else (0, json.dumps(answer) + "\n", "")

            def exit_json(self, **result):
                results.append(result)
                raise Left

            def fail_json(self, **result):
                self.exit_json(failed=True, **result)

        monkeypatch.setattr(module, "AnsibleModule", Fake)
        with pytest.raises(Left):
            module.main()
        return results[0], calls
    return run


@pytest.mark.parametrize("params, argv, data", [
    ({"command": "start"}, ["start", "--job-dir", "/jobs/j"], None),
    ({"command": "start", "plan": {"job": "j"}}, ["start", "--job-dir", "/jobs/j", "--plan"], '{"job": "j"}'),
    ({"command": "start", "plan": {"job": "j"}, "secret_env": {"TOKEN": "t"}},
     ["start", "--job-dir", "/jobs/j", "--plan", "--secret-env"], '{"plan": {"job": "j"}, "secret_env": {"TOKEN": "t"}}'),
    ({"command": "start", "plan": {"job": "j"}, "token": "x"},
     ["start", "--job-dir", "/jobs/j", "--plan", "--secret-env"], '{"plan": {"job": "j"}, "token": "x"}'),
    ({"command": "wait"}, ["wait", "--job-dir", "/jobs/j", "--seconds", "5", "--renew"], None),
    ({"command": "wait", "seconds": 2}, ["wait", "--job-dir", "/jobs/j", "--seconds", "2", "--renew"], None),
    ({"command": "status"}, ["status", "--job-dir", "/jobs/j"], None),
    ({"command": "stop"}, ["stop", "--job-dir", "/jobs/j"], None),
    ({"command": "logs", "lines": 7}, ["logs", "--job-dir", "/jobs/j", "--lines", "7"], None),
    ({"command": "plan"}, ["plan", "--job-dir", "/jobs/j"], None),
    ({"command": "collect", "output": "/tmp/o.tar"},
     ["collect", "--job-dir", "/jobs/j", "--output", "/tmp/o.tar"], None)])
def test_command_lines_of_the_agent(play, params, argv, data):
    _, calls = play(RUNNING, python=sys.executable, job_dir="/jobs/j", **params)
    assert calls == [(AGENT + argv, {"data": data, "cwd": "/", "expand_user_and_vars": False})]


def test_the_jobs_of_a_node_are_told_with_what_was_asked(play):
    asked = {"python": sys.executable, "jobs_dir": "/jobs"}
    result, calls = play({"jobs": [{"job": "one"}]}, check=True, command="jobs", job="one", **asked)
    assert calls[0][0] == AGENT + ["jobs", "--jobs-dir", "/jobs", "--job", "one"]
    assert result == {"jobs": [{"job": "one"}], "has": True, "asked": asked, "units": None, "changed": False}
    result, calls = play({"jobs": [{"job": "one"}]}, command="jobs", **asked)
    assert calls[0][0] == AGENT + ["jobs", "--jobs-dir", "/jobs", "--clear"] and not result["has"] and not result["changed"]
    assert play({"jobs": [], "cleared": ["old"]}, command="jobs", **asked)[0]["changed"]


def test_what_killed_modules_and_controllers_left_is_removed(play, monkeypatch, tmp_path):
    """Old temporary folders of ours and old archives; not what is in use, or another user's."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    old, young, others = (tmp_path / "tmp" / ("ansible_mxcluster_%s_payload_x" % name) for name in ("node", "file", "env"))
    for path in (old, young, others, tmp_path / "tmp" / "ansible_setup_payload_x"):
        path.mkdir()
        (path / "zip").write_text("")
    (tmp_path / "tmp" / "ansible_mxcluster_x_payload_link").symlink_to(tmp_path / "tmp" / "ansible_setup_payload_x")
    archives = [tmp_path / "spool" / (name + ".tar") for name in ("killed", "fetched")]
    for path in archives:
        path.write_text("")
    for path in (old, others, archives[0], tmp_path / "tmp" / "ansible_setup_payload_x"):
        os.utime(str(path), (1, 1))
    if os.geteuid() == 0:
        os.chown(str(others), pwd.getpwnam("nobody").pw_uid, -1)
    told = {"files": 1, "bytes": 1, "left": [], "problem": None}
    asked = dict(command="collect", python=sys.executable, job_dir="/j", output="/o", spool=str(tmp_path / "spool"))
    play(told, check=True, **asked)
    assert old.exists() and archives[0].exists()
    assert play(told, **asked)[0]["left"] == []
    assert not old.exists() and young.exists() and others.exists() == (os.geteuid() == 0)
    assert (tmp_path / "tmp" / "ansible_setup_payload_x" / "zip").exists()
    assert [path.exists() for path in archives] == [False, True]
    old.mkdir()
    os.utime(str(old), (1, 1))
    monkeypatch.setattr("shutil.rmtree", lambda path, **options: None)
    left = play({"ran": True, "status": None, "left": ["pid 7"]}, command="stop", python=sys.executable, job_dir="/j")[0]["left"]
    assert left == ["pid 7", "%s is left of a module that was killed, and cannot be removed" % old]


def test_an_end_is_compared_with_the_unit_before_root_ends_that(play, module, monkeypatch):
    """Whatever the answer of the user's program says of it."""
    seen = []
    monkeypatch.setattr(module, "unit_of", lambda params: "mxcluster-agent@j.service")
    monkeypatch.setattr(module, "untrue_end", lambda given, unit: seen.append("looked") or "%s is forged" % given.params["told"])
    monkeypatch.setattr(module, "settle_unit", lambda given, unit: seen.append("ended") or ["unit %s is active" % unit])
    told = {"files": 1, "bytes": 1, "left": [], "problem": None, "untrue": None}
    result, _ = play(told, command="collect", told="done", python=sys.executable, job_dir="/j", output="/o")
    assert result["untrue"] == "done is forged" and seen == ["looked", "ended"]
    assert result["left"] == ["unit mxcluster-agent@j.service is active"]


@pytest.mark.parametrize("command", ["look", "record", "check"])
def test_command_lines_of_the_node(play, command):
    request = {"files": ["/data/$HOME/~"], "address": "10.0.0.5"}
    _, calls = play({"problems": []}, python=sys.executable, command=command, request=request)
    assert calls == [([sys.executable, "-m", "mxcluster.node", command, "--request",
                       '{"address": "10.0.0.5", "files": ["/data/$HOME/~"]}'],
                      {"data": None, "cwd": "/", "expand_user_and_vars": False})]


OPEN = "jobs run without root here (mxcluster_user is empty), so nothing keeps strangers from their ports"


@pytest.mark.parametrize("command, answer, result", [
    ("start", {"job": "j", "pid": 7, "status": {}}, {"changed": True, "job": "j", "pid": 7, "status": {}}),
    ("wait", RUNNING, dict(RUNNING, changed=False, ended=False)),
    ("wait", {"status": {"state": "ended"}, "progress": {}},
     {"status": {"state": "ended"}, "progress": {}, "changed": False, "ended": True}),
    ("status", RUNNING, dict(RUNNING, changed=False, ended=False)),
    ("stop", {"ran": True, "status": {}}, {"ran": True, "status": {}, "changed": True}),
    ("stop", {"ran": False, "status": None}, {"ran": False, "status": None, "changed": False}),
    ("collect", {"files": 3, "bytes": 9, "left_out": []},
     {"files": 3, "bytes": 9, "left_out": [], "left": [], "untrue": None, "changed": True, "output": "/o", "spooled": False}),
    ("look", {"problems": [], "ansible_facts": {"distribution": "Mine"}, "_ansible_no_log": True, "add_host": {}, "failed": True},
     {"problems": [], "changed": False, "ports_open": OPEN}),
    ("look", {"problems": ["p"], "facts": {}}, {"problems": ["p"], "facts": {}, "changed": False, "ports_open": OPEN}),
    ("record", {"host": "node1"}, {"record": {"host": "node1"}, "changed": False})])
def test_results(play, command, answer, result):
    assert play(answer, python=sys.executable, command=command, job_dir="/j", output="/o")[0] == result


@pytest.mark.parametrize("command, result", [
    ("start", {"changed": True}),
    ("wait", {"changed": False, "status": None, "progress": {}, "ended": True}),
    ("stop", {"changed": False, "status": None, "ran": False}),
    ("collect", {"changed": True})])
def test_check_mode_runs_nothing_and_says_so(play, command, result):
    answer, calls = play(RUNNING, check=True, python="/no/such/python", command=command, job_dir="/j", output="/o")
    assert calls == []
    assert answer == dict(result, msg="check mode: the command %s was not run" % command)


@pytest.mark.parametrize("command", ["look", "record", "status"])
def test_check_mode_still_looks(play, command):
    _, calls = play(RUNNING, check=True, python=sys.executable, command=command, job_dir="/j")
    assert len(calls) == 1


@pytest.mark.parametrize("answer, msg", [
    ((1, '{"error": "an agent is already running, pid 7"}\n', "noise"), "an agent is already running, pid 7"),
    ((1, "", "Traceback\n/env/bin/python: No module named mxcluster\n"),
     "%s -m mxcluster.agent start ended with status 1 and without an answer: run provision.yml. Its last words:\n"
     "Traceback\n/env/bin/python: No module named mxcluster" % sys.executable),
    ((-9, "", ""), "%s -m mxcluster.agent start ended with status -9 and without an answer. Its last words:\n(nothing)"
     % sys.executable)])
def test_errors_are_told_cleanly(play, answer, msg):
    assert play(answer, python=sys.executable, command="start", job_dir="/j")[0] == {"failed": True, "msg": msg}


def test_what_a_library_prints_does_not_hide_the_answer(play):
    result, _ = play((0, 'a library says hello\n{"host": "node1"}\n', ""), python=sys.executable, command="record")
    assert result["record"] == {"host": "node1"}


def test_a_python_that_is_not_there(play):
    result, calls = play(RUNNING, python="/no/such/python", command="look")
    assert result == {"failed": True, "msg": "/no/such/python cannot be run on this node: run provision.yml"}
    assert calls == []


def ansible(tmp_path, **params):
    """The answer of the module run as Ansible runs it, with its exit status."""
    return ansible_modules.run("mxcluster_node", tmp_path, **dict(params, python=sys.executable))


def test_a_job_from_start_to_collection(tmp_path):
    process = {"name": "worker-0", "role": "worker", "index": 0, "command": ["sh", "-c", "echo done"], "env": {}}
    plan = {"schema": 1, "job": "j", "host": "node1", "lease": 10, "files": {}, "processes": [process]}
    job = {"job_dir": str(tmp_path / "job")}
    assert ansible(tmp_path, command="look", request={"address": "127.0.0.11"})["problems"] == []
    started = ansible(tmp_path, command="start", plan=plan, **job)
    assert started["changed"] is True and started["job"] == "j", started
    again = ansible(tmp_path, command="start", plan=plan, **job)
    assert again["rc"] == 1 and again["failed"] is True and str(tmp_path / "job") in again["msg"], again
    waited = ansible(tmp_path, command="wait", **job)
    assert (waited["ended"], waited["status"]["reason"]) == (True, "done"), waited
    assert ansible(tmp_path, command="stop", **job)["changed"] is False
    packed = ansible(tmp_path, command="collect", output=str(tmp_path / "o.tar"), **job)
    assert packed["files"] == 5 and os.path.getsize(str(tmp_path / "o.tar")) == packed["bytes"], packed


def test_a_secret_is_in_no_answer(tmp_path):
    """It is masked by its value alone, also where it is none, so nothing of the result may matter: here it is in a job's name."""
    process = {"name": "worker-0", "role": "worker", "index": 0, "command": ["sh", "-c", "test ${#TOKEN} = 6"], "env": {}}
    plan = {"schema": 1, "job": "the-hush-1-job", "host": "node1", "lease": 10, "files": {}, "processes": [process]}
    started = ansible(tmp_path, command="start", plan=plan, secret_env={"TOKEN": "hush-1"}, job_dir=str(tmp_path / "job"))
    assert started["rc"] == 0 and "hush-1" not in str(started), started
    assert ansible(tmp_path, command="wait", job_dir=str(tmp_path / "job"))["status"]["reason"] == "done"


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists(EVERYBODYS), reason="only root packs for another")
@pytest.mark.parametrize("user, reader, under", [("nobody", 4711, "3"), ("nobody", None, "3"), ("", 4711, "3"),
                                                 ("nobody", 4711, "2.7")])
def test_what_root_packs_is_for_the_one_who_logs_in(user, reader, under):
    """Written by the user through root's descriptor: nothing of it lies where the user could lay a link in its place."""
    with tempfile.TemporaryDirectory() as place:  # pytest's own folder is for its user only
        os.chmod(place, 0o755)
        pack_for(Path(place), user, reader, sys.executable if under == "3" else find_python(under))


def pack_for(tmp_path, user, reader, under):
    process = {"name": "worker-0", "role": "worker", "index": 0, "command": ["true"], "env": {}}
    plan = {"schema": 1, "job": "j", "host": "node1", "lease": 10, "files": {}, "processes": [process]}
    job = {"job_dir": str(tmp_path / "job")}
    ansible(tmp_path, command="start", plan=plan, **job)
    ansible(tmp_path, command="wait", **job)
    if user:
        for path in [tmp_path / "job", *(tmp_path / "job").iterdir()]:
            os.chown(str(path), pwd.getpwnam(user).pw_uid, -1)
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "job.tar").symlink_to(tmp_path / "elsewhere")
    packed = ansible_modules.run("mxcluster_node", tmp_path, command="collect", output=str(tmp_path / "job" / "o.tar"),
                                 spool=str(tmp_path / "spool"), user=user, reader=reader, python=EVERYBODYS, under=under, **job)
    assert packed["rc"] == 0, packed
    found = os.lstat(packed["output"])
    assert re.fullmatch(re.escape(str(tmp_path / "spool")) + r"/job-[^/]+\.tar", packed["output"]), packed
    assert packed["spooled"], packed
    assert (found.st_uid, found.st_mode & 0o777, found.st_size) == (reader or 0, 0o600, packed["bytes"])
    assert not (tmp_path / "elsewhere").exists() and not (tmp_path / "job" / "o.tar").exists()
    with tarfile.open(packed["output"]) as archive:
        assert "status.json" in archive.getnames()


# MXNet's import lasts until the attacker holds the pipe, so that it is never too late.
SLOW = """
__version__ = '1.9.1'
import os, time
for _ in range(200):
    if os.path.exists(%r):
        break
    time.sleep(0.1)
"""
ATTACK = r"""
import glob, json, os, time
hostile = json.loads(open("hostile.json").read())
pipe = None
while pipe is None:
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read().split(b"\0")
            if b"mxcluster.node" in words and b"record" in words and os.stat(os.path.dirname(path)).st_uid == os.getuid():
                process = os.path.dirname(path)
                pipe = os.open(process + "/fd/1", os.O_WRONLY)
                break
        except (IOError, OSError):
            continue
open("marks/holding", "w").close()
while os.path.exists(process + "/cmdline") and open(process + "/cmdline", "rb").read():  # the last line counts
    time.sleep(0.01)
os.write(pipe, ("\n" + json.dumps(hostile) + "\n").encode())
"""
NODE = """#!/bin/sh
# As the environment of a node: mxcluster is in it, also under -I.
[ "$1" = -I ] && shift
PYTHONPATH=%s exec %s "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists(EVERYBODYS), reason="only root asks for another user")
def test_who_writes_into_the_answer_gets_no_further_than_its_own_versions(tmp_path):
    """A real process of the training user writes into the stdout of the program that root waits for.

    Before, root ran the `python` of that answer, and other nodes got its host keys.
    """
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        attack(Path(place))


def attack(place):
    from mxcluster import network, node, records
    from mxcluster.errors import BadInput
    (place / "lib" / "mxnet" / "gluon" / "model_zoo").mkdir(parents=True)
    (place / "marks").mkdir()
    os.chown(str(place / "marks"), pwd.getpwnam("nobody").pw_uid, -1)
    for name in ("mxnet", "mxnet/gluon", "mxnet/gluon/model_zoo"):
        (place / "lib" / name / "__init__.py").write_text(SLOW % str(place / "marks" / "holding"))
    (place / "lib" / "mxnet" / "gluon" / "model_zoo" / "vision.py").write_text(
        "def get_model(name): raise ValueError('no\\nlenet')")
    (place / "lib" / "numpy.py").write_text("__version__ = '1.23.5'\n")
    shutil.copytree(str(ROOT / "node" / "mxcluster"), str(place / "lib" / "mxcluster"))
    python = place / "python"
    python.write_text(NODE % (place / "lib", EVERYBODYS))
    python.chmod(0o755)
    hostile = {"host": "node2", "python": "/tmp/evil", "hostname": "x\n  ProxyCommand evil",
               "host_keys": ["@cert-authority * evil"],
               "interfaces": {"eth0": ["203.0.113.1/32"]}, "gpus": 9, "address_of_default_route": "203.0.113.1",
               "python_version": "3.6.8", "mxnet": "9.9", "numpy": "1.0", "model_zoo": [], "ansible_facts": {"distribution": "x"}}
    (place / "hostile.json").write_text(json.dumps(hostile))
    attacker = subprocess.Popen([EVERYBODYS, "-c", ATTACK], cwd=str(place), user="nobody", group=pwd.getpwnam("nobody").pw_gid,
                                extra_groups=[], env={})
    try:
        answer = ansible_modules.run("mxcluster_node", place, python=str(python), command="record", user="nobody")
        assert attacker.wait(20) == 0
    finally:
        attacker.kill()
    told = answer["record"]
    assert told["mxnet"] == "9.9", "it has written into the answer, as it had to be shown"
    assert told["hostname"] == os.uname()[1] and told["host_keys"] == node.host_keys()
    assert told["interfaces"] == network.interfaces() and "ansible_facts" not in answer and "ansible_facts" not in told
    record = records.make("node1", told, {"python": "/opt/mxcluster/env/bin/python"})
    assert record["host"] == "node1" and record["python"] == "/opt/mxcluster/env/bin/python"
    with pytest.raises(BadInput, match="the node record of node1 is refused: hostname="):
        records.make("node1", hostile, {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a spool")
def test_a_spool_that_others_write_to_is_refused(tmp_path):
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool").chmod(0o777)
    answer = ansible(tmp_path, command="collect", output="/o", job_dir="/j", user="nobody", spool=str(tmp_path / "spool"))
    assert "is not a folder of root's that nobody else can write to: remove it" in answer["msg"], answer


def test_a_command_without_what_it_needs(tmp_path):
    answer = ansible(tmp_path, command="collect", job_dir="/j")
    assert answer["rc"] == 1 and "output" in answer["msg"], answer
