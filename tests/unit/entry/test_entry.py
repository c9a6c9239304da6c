"""The entry program of a node: as root, as the training user and without root.

The tests use real processes.
"""

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import pytest

from mxcluster import entry
from mxcluster.ansible import node_program
from mxcluster.ansible.contact import Output
from mxcluster.entry import leftovers, programs
from mxcluster.errors import MxclusterError
from mxcluster.model.answers import (
    Collected,
    Held,
    JobList,
    Looked,
    Progress,
    Recorded,
    Stopped,
)
from mxcluster.model.node_record import MachineFacts, NodeFacts
from mxcluster.model.protocol import COMMANDS, RecordNode
from mxcluster.node import quota
from tests import needs
from tests.plans import part_json
from tests.unit import statuses

ROOT = Path(__file__).parents[3]
EVERYBODYS = "/usr/bin/python3"  # only its owner may be able to reach the tests' Python
WAIT = {"seconds": 60}  # for a job with a lease of two minutes


def request(command, **fields):
    """Return the checked request for a command."""
    return COMMANDS[command].decode(fields)


def enter(python=sys.executable, **given):
    """Run the real program and return the task's result."""
    sent = request(**given)
    done = subprocess.run(
        ["sh", "-c", node_program.program(python)],
        input=sent.to_bytes(),
        capture_output=True,
        timeout=120,
    )
    output = Output(rc=done.returncode, stdout=done.stdout.decode(), stderr=done.stderr.decode())
    try:
        return node_program.result(python, sent, "node1", output)
    except MxclusterError as error:
        return {"failed": True, "msg": str(error)}


def test_leftovers_of_killed_modules_and_controllers_are_removed(monkeypatch, tmp_path):
    """Old temporary folders and archives go; files in use and files of other users stay."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    old, young, others = (
        tmp_path / "tmp" / ("ansible_mxcluster_%s_payload_x" % name)
        for name in ("node", "file", "env")
    )
    for path in (old, young, others, tmp_path / "tmp" / "ansible_setup_payload_x"):
        path.mkdir()
        (path / "zip").write_text("")
    (tmp_path / "tmp" / "ansible_mxcluster_x_payload_link").symlink_to(
        tmp_path / "tmp" / "ansible_setup_payload_x"
    )
    archives = [tmp_path / "spool" / (name + ".tar") for name in ("killed", "fetched")]
    for path in archives:
        path.write_text("")
    for path in (old, others, archives[0], tmp_path / "tmp" / "ansible_setup_payload_x"):
        os.utime(str(path), (1, 1))
    if os.geteuid() == 0:
        os.chown(str(others), pwd.getpwnam("nobody").pw_uid, -1)
    packed = Collected(files=1, bytes=1, left=[], problem=None)
    monkeypatch.setattr(programs, "answer_of", lambda *given: packed)
    given = dict(command="collect", job_dir="/j", output="/o", spool=str(tmp_path / "spool"))
    entry.run(request(check=True, **given))
    assert old.exists() and archives[0].exists()
    monkeypatch.setattr(entry.units, "is_spooled", lambda given: False)
    assert entry.run(request(**given)).left == []
    assert not old.exists() and young.exists() and others.exists() == (os.geteuid() == 0)
    assert (tmp_path / "tmp" / "ansible_setup_payload_x" / "zip").exists()
    assert [path.exists() for path in archives] == [False, True]
    old.mkdir()
    os.utime(str(old), (1, 1))
    stopped = Stopped(ran=True, status=None, left=["pid 7"])
    with monkeypatch.context() as during:  # the fixture tmp_path removes folders, too
        during.setattr("shutil.rmtree", lambda path, **options: None)
        during.setattr(programs, "answer_of", lambda *given: stopped)
        left = entry.run(request("stop", job_dir="/j")).left
    assert left == [
        "pid 7",
        "cannot remove %s, a leftover of a killed module or controller: remove this path as root"
        % old,
    ]


@needs.root
@pytest.mark.parametrize("mode, swept", [(0o755, True), (0o777, False), (0o1777, False)])
def test_an_old_archive_of_the_login_user_is_removed(monkeypatch, tmp_path, mode, swept):
    """Root gives the archive to the login user, whose fetch may have failed.

    Young archives belong to concurrent runs. In a folder that other users can change, the archives
    of other users stay.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool = tmp_path / "spool"
    spool.mkdir()
    spool.chmod(mode)
    old, young, gone = (spool / (name + ".tar") for name in ("old", "young", "removed"))
    for path in (old, young, gone):
        path.write_text("")
        os.chown(str(path), pwd.getpwnam("nobody").pw_uid, -1)
    os.utime(str(old), (1, 1))
    assert leftovers.sweep(str(spool)) == []
    assert (old.exists(), young.exists()) == (not swept, True)
    # A concurrent run removes the archive after the listing.
    monkeypatch.setattr(leftovers, "_old_paths", lambda *given, **named: [str(gone)] * 2)
    assert leftovers.sweep(str(spool)) == [] and not gone.exists()


def test_root_compares_an_end_with_the_unit_before_ending_the_unit(monkeypatch):
    """The answer of the user's program cannot change this order."""
    seen, units = [], entry.units
    monkeypatch.setattr(units, "unit_of", lambda given: "mxcluster-agent@j.service")
    packed = Collected(files=1, bytes=1, left=[], problem=None)

    def tell(module, name, word, answer):
        monkeypatch.setattr(module, name, lambda *given: seen.append(word) or answer)

    tell(units, "untrue_end", "looked", "done is forged")
    tell(units, "settle", "ended", ["unit mxcluster-agent@j.service is active"])
    tell(units, "outside", "searched", ["pid 7 runs"])
    tell(programs, "answer_of", "asked", packed)
    answer = entry.run(request("collect", told="done", job_dir="/j", output="/o"))
    assert answer.untrue == "done is forged" and answer.outside == ["pid 7 runs"]
    assert seen == ["looked", "ended", "searched", "asked"]
    assert answer.left == ["unit mxcluster-agent@j.service is active"]


@pytest.mark.parametrize("reason, collects", [("done", True), ("failed", False), (None, False)])
def test_the_end_of_a_wait_collects_the_files_of_a_part_that_ended_well(
    monkeypatch, reason, collects
):
    """Other nodes hear of a failure before the files are packed, which may take minutes."""
    ended = {"state": "ended", "reason": reason} if reason else {}
    waited = Progress(status=statuses.status(dict(ended, processes=[])))
    forged = Collected(files=9, bytes=9, problem=None)
    told = {"wait": waited.replaced(collected=forged), "collect": forged.replaced(files=1)}
    seen = []
    monkeypatch.setattr(programs, "answer_of", lambda one: seen.append(one) or told[one.KIND])
    collect = {"command": "collect", "job_dir": "/j", "output": "/o"}
    answer = entry.run(request("wait", job_dir="/j", collect=collect))
    assert [one.KIND for one in seen] == ["wait", *["collect"] * collects]
    assert (answer.collected.files if collects else answer.collected) == (1 if collects else None)
    assert not collects or seen[1].reason == "done"


@pytest.mark.parametrize("error", [MxclusterError("the folder is gone"), OSError(28, "full")])
def test_files_that_cannot_be_collected_do_not_spoil_the_end_of_a_wait(monkeypatch, error):
    def told(one):
        if one.KIND == "wait":
            ended = {"state": "ended", "reason": "done", "processes": []}
            return Progress(status=statuses.status(ended))
        raise error

    monkeypatch.setattr(programs, "answer_of", told)
    collect = {"command": "collect", "job_dir": "/j", "output": "/o"}
    answer = entry.run(request("wait", job_dir="/j", collect=collect))
    assert answer.status.has_ended and answer.collected is None


def test_stop_ends_the_unit_after_a_failure_of_the_users_process(monkeypatch):
    def spoiled(given):
        raise MxclusterError("status.json is not JSON")

    units, seen = entry.units, []
    monkeypatch.setattr(units, "unit_of", lambda given: "mxcluster-agent@j.service")
    monkeypatch.setattr(
        units, "settle", lambda given, unit: seen.append(unit) or ["port 9091 is still open"]
    )
    monkeypatch.setattr(programs, "answer_of", spoiled)
    with pytest.raises(
        MxclusterError,
        match="is not JSON\nRoot has ended the unit mxcluster-agent@j.service.\nport 9091 is",
    ):
        entry.run(request("stop", job_dir="/j"))
    assert seen == ["mxcluster-agent@j.service"]


@pytest.mark.parametrize("fails", ["close", "can"])
def test_a_broken_firewall_stops_no_other_step(fails, monkeypatch):
    def broken(*given):
        raise KeyError("ports")

    units = entry.units
    monkeypatch.setattr(units.firewall, fails, broken)
    monkeypatch.setattr(units.calls, "run", lambda argv: (0, "", ""))
    monkeypatch.setattr(units.os, "geteuid", lambda: 0)
    monkeypatch.setattr(units.os.path, "exists", lambda path: True)
    monkeypatch.setattr(units.os.path, "isdir", lambda path: True)
    if fails == "close":
        (line,) = units.settle(request("stop", job_dir="/jobs/j"), "mxcluster-agent@j.service")
        assert "cannot remove the firewall rules of the job in /jobs/j (KeyError: 'ports')" in line
    else:
        assert "is unknown (KeyError: 'ports')" in units.why_open(request("look", user="mx"))


def test_root_overrides_the_users_answer_on_folders_ports_and_units(monkeypatch):
    monkeypatch.setattr(entry.units, "why_open", lambda given: "no nft")
    monkeypatch.setattr(entry.units, "hidden", lambda given: ["/tmp is another"])
    looked = Looked(problems=["no /data"], held=Held(ports={}, gpus={}), fits=True, ports_open="")
    answers = {"look": looked, "jobs": JobList(jobs=[], units=["b"])}
    monkeypatch.setattr(programs, "answer_of", lambda given: answers[given.KIND])
    look = entry.run(request("look"))
    assert look.problems == ["no /data", "/tmp is another"] and look.ports_open == "no nft"
    monkeypatch.setattr(entry.units, "jobs_with_units", lambda given: ["a"])
    assert entry.run(request("jobs", jobs_dir="/jobs")).units == ["a"]


@pytest.mark.parametrize(
    "data, words",
    [
        (b"[]", "value=[] is not an object"),
        (b"{", "Expecting property name"),
        (b'{"command": "dance"}', "command='dance' is not one of look, record"),
        (b'{"command": "stop"}', "is not an object with job_dir"),
    ],
)
def test_an_invalid_request_names_the_cure(data, words):
    """A later controller may have a command that this version lacks."""
    done = subprocess.run(
        [sys.executable, "-I", "-m", "mxcluster.entry"],
        input=data,
        stdout=subprocess.PIPE,
        timeout=60,
    )
    error = json.loads(done.stdout.decode())["error"]
    assert done.returncode == 1 and words in error and "run provision.yml" in error


@pytest.mark.slow
def test_a_secret_reaches_the_job_but_no_answer(tmp_path):
    process = {"name": "worker-0", "role": "worker", "index": 0, "env": {}}
    process["command"] = ["sh", "-c", "test ${#TOKEN} = 6"]
    job = {"plan": part_json(process, job="job", lease=120), "secret_env": {"TOKEN": "hush-1"}}
    started = enter(command="start", job_dir=str(tmp_path / "job"), **job)
    assert started["job"] == "job" and "hush-1" not in str(started), started
    waited = enter(command="wait", job_dir=str(tmp_path / "job"), **WAIT)
    assert waited["status"]["reason"] == "done"


@pytest.mark.slow
@needs.root
@pytest.mark.parametrize("user, reader", [("nobody", 4711), ("nobody", None), ("", 4711)])
def test_an_archive_of_root_belongs_to_the_login_user(user, reader):
    """The user writes through root's descriptor, so the user cannot replace a path by a link."""
    with tempfile.TemporaryDirectory() as place:  # only the owner can enter pytest's own folder
        os.chmod(place, 0o755)
        pack_for(Path(place), user, reader)


def everybodys(place):
    """Return a Python that every user may run; mxcluster is in it, also under -I."""
    if not (place / "lib" / "mxcluster").exists():
        shutil.copytree(str(ROOT / "python" / "mxcluster"), str(place / "lib" / "mxcluster"))
    python = place / "python"
    python.write_text(NODE % (place / "lib", EVERYBODYS, place))
    python.chmod(0o755)
    return str(python)


def pack_for(tmp_path, user, reader):
    process = {"name": "worker-0", "role": "worker", "index": 0, "command": ["true"], "env": {}}
    plan = part_json(process, job="job", lease=120)
    job, python = {"job_dir": str(tmp_path / "jobs" / "job")}, everybodys(tmp_path)
    (tmp_path / "jobs").mkdir()
    if user:
        os.chown(str(tmp_path / "jobs"), pwd.getpwnam(user).pw_uid, -1)
    started = enter(python, command="start", plan=plan, user=user, **job)
    assert started.get("job") == "job", started
    assert os.stat(job["job_dir"]).st_uid == pwd.getpwnam(user or "root").pw_uid
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "job.tar").symlink_to(tmp_path / "elsewhere")
    collect = dict(command="collect", output=job["job_dir"] + "/o.tar", reader=reader, **job)
    collect.update(spool=str(tmp_path / "spool"), user=user)
    waited = enter(python, command="wait", user=user, collect=collect, **WAIT, **job)
    packed = waited["collected"]
    assert packed["spooled"], packed
    pattern = re.escape(str(tmp_path / "spool")) + r"/job-[^/]+\.tar"
    assert re.fullmatch(pattern, packed["output"]), packed
    found = os.lstat(packed["output"])
    assert (found.st_uid, found.st_mode & 0o777) == (reader or 0, 0o600)
    assert found.st_size == packed["bytes"]
    assert not (tmp_path / "elsewhere").exists() and not os.path.exists(job["job_dir"] + "/o.tar")
    with tarfile.open(packed["output"]) as archive:
        assert "status.json" in archive.getnames()


# The import of MXNet lasts until the attack has run, so that the attack is never too late.
SLOW = """
__version__ = '1.9.1'
import os, time
for _ in range(600):
    if os.path.exists(%r):
        break
    time.sleep(0.1)
"""
ATTACK = r"""
import glob, os, time
refused = []
while not refused:
    for path in glob.glob("/proc/[0-9]*/status"):
        try:
            told = dict(line.split(":", 1) for line in open(path).read().splitlines())
            own = int(path.split("/")[2]) == os.getpid()
            if told["Uid"].split()[0] == str(os.getuid()) and not own:
                process = os.path.dirname(path)
                words = open(process + "/cmdline", "rb").read().split(b"\0")
                if b"mxcluster.entry" in words and b"place=" + os.getcwd().encode() in words:
                    for descriptor in range(16):
                        try:
                            os.close(os.open(process + "/fd/%d" % descriptor, os.O_WRONLY))
                            refused.append("no")
                        except PermissionError:
                            refused.append("yes")
                        except OSError:
                            pass
        except (IOError, OSError, KeyError):
            continue
open("marks/tried", "w").write(" ".join(sorted(set(refused))))
"""
NODE = """#!/bin/sh
# As the environment of a node: mxcluster is in it, also under -I.
[ "$1" = -I ] && shift
PYTHONPATH=%s exec %s -X place=%s "$@"  # the option names the test in the list of processes
"""


@pytest.mark.slow
@needs.root
def test_the_user_cannot_write_into_the_answer():
    """The training user cannot open the file that the answering process writes to.

    An earlier version ran the `python` of a forged answer as root, and other nodes received its
    host keys. Root's own observations override the answer in any case.
    """
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        attack(Path(place))


def attack(place):
    from mxcluster.node import addresses, probe

    (place / "lib" / "mxnet" / "gluon" / "model_zoo").mkdir(parents=True)
    (place / "marks").mkdir()
    os.chown(str(place / "marks"), pwd.getpwnam("nobody").pw_uid, -1)
    for name in ("mxnet", "mxnet/gluon", "mxnet/gluon/model_zoo"):
        (place / "lib" / name / "__init__.py").write_text(SLOW % str(place / "marks" / "tried"))
    (place / "lib" / "mxnet" / "gluon" / "model_zoo" / "vision.py").write_text(
        "def get_model(name): raise ValueError('no\\nlenet')"
    )
    (place / "lib" / "numpy.py").write_text("__version__ = '1.23.5'\n")
    attacker = subprocess.Popen(
        [EVERYBODYS, "-c", ATTACK],
        cwd=str(place),
        user="nobody",
        group=pwd.getpwnam("nobody").pw_gid,
        extra_groups=[],
        env={},
    )
    try:
        answer = enter(everybodys(place), command="record", user="nobody")
        assert attacker.wait(60) == 0
    finally:
        attacker.kill()
    assert (place / "marks" / "tried").read_text() == "yes", "the attacker opened the file"
    told = answer["record"]
    assert told["mxnet"] == "1.9.1" and told["hostname"] == os.uname()[1]
    assert told["host_keys"] == probe.host_keys()
    assert told["interfaces"] == addresses.interfaces()


def test_roots_observations_override_the_users_answer(monkeypatch):
    hostile = NodeFacts(
        hostname="x\n  ProxyCommand evil",
        host_keys=["@cert-authority evil"],
        mxnet="9.9",
        address_of_default_route="192.0.2.1",
    )
    monkeypatch.setattr(entry.os, "geteuid", lambda: 0)
    monkeypatch.setattr(programs, "answer_of", lambda given: Recorded(record=hostile))
    own = MachineFacts(hostname="node1", host_keys=["ssh-ed25519 AAAA"])
    monkeypatch.setattr("mxcluster.node.probe.machine", lambda: own)
    found = entry.run(RecordNode(user="nobody")).record
    assert found == NodeFacts(mxnet="9.9", **vars(own))


def test_a_child_counts_the_cpu_time_of_its_parent(monkeypatch):
    """Else a wait, which starts with root's imports, takes more of a small quota than its part."""
    monkeypatch.setattr(programs.training_user, "other", lambda *given: pwd.getpwuid(os.getuid()))
    monkeypatch.setattr(programs.training_user, "drop_rights", lambda entry: None)
    monkeypatch.setattr(programs, "_in_process", lambda *given: (quota.own_cpu(), 0))
    monkeypatch.setattr(programs, "_checked", lambda request, found, code: found)
    before = time.process_time()
    assert before > 0 and programs.answer_of(request("look")) >= before
    assert quota.OF_PARENT == []


def test_library_output_without_a_newline_does_not_break_the_answer(tmp_path):
    (tmp_path / "noisy.py").write_text(
        "import os, atexit\nos.write(1, b'a warning ')\natexit.register(os.write, 1, b'another')\n"
    )
    program = (
        "import sys; sys.path.insert(0, %r); import noisy\nimport runpy\n"
        "runpy.run_module('mxcluster.entry', run_name='__main__')" % str(tmp_path)
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=request("look").to_bytes(),
        capture_output=True,
        timeout=60,
    )
    assert json.loads(done.stdout.decode().splitlines()[-1])["problems"] == []
    assert b"another" in done.stderr, done


@needs.root
def test_a_python_that_the_user_cannot_run_is_refused(tmp_path, monkeypatch):
    """Modules that root has loaded already would hide the mistake."""
    nobody = pwd.getpwnam("nobody")
    tmp_path.chmod(0o700)
    python = tmp_path / "python"
    shutil.copy2(EVERYBODYS, str(python))
    monkeypatch.setattr(programs.sys, "executable", str(python))
    with pytest.raises(
        MxclusterError, match="the training user nobody cannot run the Python %s: " % python
    ):
        programs._prove_that_it_runs(nobody)
    monkeypatch.setattr(programs.sys, "executable", EVERYBODYS)
    programs._prove_that_it_runs(nobody)


@needs.root
def test_a_spool_that_other_users_can_write_to_is_refused(tmp_path):
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool").chmod(0o777)
    answer = enter(
        command="collect", output="/o", job_dir="/j", user="nobody", spool=str(tmp_path / "spool")
    )
    assert "only root can write to: remove this path" in answer["msg"], answer
