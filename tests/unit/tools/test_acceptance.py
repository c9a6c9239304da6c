"""The steps of an acceptance run on a real node: which run, what they print, and the report."""

import json
import os
import re
import runpy
import subprocess
import sys

import pytest

from mxcluster.ansible import knobs
from mxcluster.model.acceptance import PASSED, Outcome
from mxcluster.model.cluster_verdict import FAILED, NOT_RUN
from tools import acceptance

SCRIPT = acceptance.PROJECT / "molecule" / "el7" / "real.sh"


def followed(failing=(), allowed=True, gpus=True, why="broke", **options):
    """Return ({step: result}, {step: reason}, exit status) of a run in which some steps fail."""

    def run(step):
        is_good = step.name not in failing
        return acceptance.ended(step, PASSED if is_good else FAILED, "" if is_good else why)

    shown = []
    outcomes = acceptance.follow(
        acceptance.steps(**options), run, lambda: allowed, lambda: gpus, shown.append
    )
    assert shown == outcomes
    results = {one.step: one.result for one in outcomes}
    return results, {one.step: one.why for one in outcomes}, acceptance.status(outcomes)


def test_a_good_node_passes_every_step():
    results, reasons, status = followed(reset=True)
    assert set(results.values()) == {PASSED} and not any(reasons.values()) and status == 0
    assert list(results)[:4] == ["dry run", "system", "provision", "provision again"]
    trained = [step[len("train ") :] for step in results if step.startswith("train dist")]
    assert trained == ["dist_sync", "dist_async", "dist_gsync", "dist_ssync"]


def test_a_node_is_changed_only_with_permission():
    """Steps that read run; all others are not run, which is no success."""
    results, reasons, status = followed(allowed=False, reset=True)
    assert [step for step in results if results[step] == PASSED] == ["dry run", "system"]
    assert set(results.values()) == {PASSED, NOT_RUN} and status == 1
    assert reasons["provision"] == "refused: answer yes, or give --yes"
    assert reasons["reset"] == "reset dry run did not pass"


def test_what_is_destructive_is_off_by_default():
    commands = [" ".join(step.argv) for step in acceptance.steps()]
    assert "reset.yml" not in [command.rpartition(" ")[2] for command in commands]
    assert not [command for command in commands if "reboot" in command]
    commands = [" ".join(step.argv) for step in acceptance.steps(restart=True, reset=True)]
    assert "ansible-playbook provision.yml -e nvidia_driver_reboot=true" in commands
    assert commands[-1] == "ansible-playbook reset.yml"


@pytest.mark.parametrize(
    "failing, stopped",
    [
        ("dry run", "system"),
        ("system", "provision"),
        ("provision", "verify"),
        ("provision", "train dist_sync"),
        ("reset dry run", "reset"),
    ],
)
def test_a_step_needs_those_before(failing, stopped):
    results, reasons, status = followed([failing], reset=True)
    assert results[failing] == FAILED and results[stopped] == NOT_RUN and status == 1
    assert "did not pass" in reasons[stopped]


def test_a_failed_check_stops_no_training():
    results, _, status = followed(["provision again", "tests", "verify", "train dist_sync"])
    assert results["train dist_ssync"] == results["reset dry run"] == PASSED and status == 1


def test_a_failure_that_speaks_of_gpus_is_a_failure():
    """verify.yml and MXNet write these words into their own failures."""
    assert followed(["verify"], why=acceptance.NO_GPU)[2] == 1


def test_a_node_without_a_gpu_trains_on_none():
    results, reasons, status = followed(gpus=False)
    assert results["train on GPUs"] == NOT_RUN and status == 0
    assert reasons["train on GPUs"] == "the node shows no GPU"


def test_the_record_of_the_node_tells_of_gpus(tmp_path):
    assert not acceptance.has_gpus(tmp_path)
    records = acceptance.state(tmp_path) / "nodes"
    records.mkdir(parents=True)
    for text, found in (('{"gpus": 0}', False), ('{"gpus": 2}', True), ("{", False)):
        (records / "node1.json").write_text(text)
        assert acceptance.has_gpus(tmp_path) == found


def test_steps_give_knobs_that_their_playbooks_read():
    for step in acceptance.steps(restart=True, reset=True):
        if step.argv[0] == "ansible-playbook":
            given = {word.partition("=")[0] for word in step.argv if "=" in word}
            read = {*knobs.PLAYBOOKS[step.argv[1]], *knobs.OF_A_HOST, "nvidia_driver_reboot"}
            assert given <= read, step


def test_the_named_tests_exist():
    text = (acceptance.PROJECT / acceptance.TESTS).read_text()
    named = [word for step in acceptance.steps() for word in step.argv if "::" in word]
    assert named
    for word in named:
        assert "\ndef %s(" % word.partition("::")[2] in text, word


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MXCLUSTER_EL7_INVENTORY", "MXCLUSTER_EL7_IMAGE"])
def test_on_a_real_centos_7_no_test_of_the_stand_in_runs(tmp_path, name):
    variables = acceptance.environment(tmp_path, dict(os.environ))
    del variables["MXCLUSTER_EL7_INVENTORY"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "molecule/el7"],
        cwd=str(acceptance.PROJECT),
        env=dict(variables, **{name: str(tmp_path)}),
        stdout=subprocess.PIPE,
    )
    collected = re.findall(r"^(\S+)::", done.stdout.decode(), re.MULTILINE)
    assert set(collected) == {acceptance.TESTS}, done.stdout.decode()


@pytest.mark.parametrize(
    "line, wrong",
    [
        ("baseurl=https://vault.centos.org/7.9.2009/os/$basearch/", False),
        ("baseurl=http://mirror.example.org/centos/7.9.2009/os/$basearch/", False),
        ("baseurl=http://mirror.centos.org/centos/$releasever/os/$basearch/", True),
        ("baseurl=http://a/\nmirrorlist=http://mirrorlist.centos.org/?repo=os", True),
        ("#baseurl=http://mirror.example.org/", True),
        ("baseurl=http://mirror.example.org/\ngpgcheck = 0", True),
    ],
)
def test_the_archive_of_a_node_may_be_a_mirror_of_the_site(line, wrong):
    known = runpy.run_path(str(acceptance.PROJECT / acceptance.TESTS))
    lines = "[base]\n#mirrorlist=http://mirrorlist.centos.org/?repo=os\n%s\ngpgcheck=1\n"
    assert bool(known["faults"](lines % line)) == wrong


class Nodes:
    """A cluster of one node whose shell answers as its programs do."""

    names = ("node1",)

    def __init__(self, variables, answers):
        self.variables, self.answers = {"node1": variables}, answers

    def shell(self, name, script, user="root"):
        program, _, python = script.partition(" -c ")
        return self.answers[program, user, "mxnet" in python]


@pytest.mark.parametrize(
    "variables, python, user, version",
    [
        ({}, "/opt/mxcluster/env/bin/python", "mxcluster", "1.2.1"),
        (
            {"mxcluster_home": "/srv/m", "mxcluster_user": "ann", "mxnet_version": "1.5.1"},
            "/srv/m/env/bin/python",
            "ann",
            "1.5.1",
        ),
    ],
)
def test_mxnet_is_tried_as_the_inventory_names_it(variables, python, user, version):
    answers = {
        (python, user, True): "a warning\n" + version,
        (python, user, False): "(3, 6)",
        ("/usr/bin/python3", "root", False): "(3, 6)",
    }
    known = runpy.run_path(str(acceptance.PROJECT / acceptance.TESTS))
    known["test_mxnet_runs_on_its_python"](Nodes(variables, answers))
    answers[python, user, True] = "1.9.1"
    with pytest.raises(AssertionError):
        known["test_mxnet_runs_on_its_python"](Nodes(variables, answers))


@pytest.mark.parametrize(
    "output, why",
    [
        ("node1 : ok=40 changed=0 unreachable=0\n", ""),
        (
            "a\nnode1                      : ok=40   changed=3    x\n",
            "a second run made changes: 3",
        ),
        ("", "the output has no recap"),
    ],
)
def test_a_second_run_must_change_nothing(output, why):
    assert acceptance.no_change(output) == why


@pytest.mark.parametrize(
    "script, result, why",
    [
        ("echo done", PASSED, ""),
        (
            "echo a; echo 'fatal: [node1]: FAILED! => no room'; echo recap; exit 2",
            FAILED,
            "no room",
        ),
        ("echo the last line; exit 3", FAILED, "exit status 3: the last line"),
        ("exit 1", FAILED, "exit status 1: no output"),
    ],
)
def test_a_step_runs_its_program(tmp_path, script, result, why):
    step = acceptance.Step("provision", ["sh", "-c", script], (), acceptance.nothing)
    outcome = acceptance.execute(step, tmp_path / "provision.log", dict(os.environ))
    assert outcome.result == result and why in outcome.why and outcome.seconds >= 0


def test_an_output_can_fail_a_step(tmp_path):
    argv = ["echo", "node1 : ok=1 changed=2 x"]
    step = acceptance.Step("again", argv, (), acceptance.no_change)
    outcome = acceptance.execute(step, tmp_path / "again.log", dict(os.environ))
    assert outcome.result == FAILED and outcome.why == "a second run made changes: 2"


@pytest.mark.slow
def test_the_inventory_is_that_of_one_node(tmp_path):
    own = {"el7_repos_mirror": "http://mirror/7", "ansible_become": False}
    own.update(train_job_runs_dir="/elsewhere", mxcluster_state_dir="/elsewhere")
    acceptance.prepare(tmp_path, "centos", "10.20.0.7", 2222, own)
    environment = acceptance.environment(tmp_path, dict(os.environ, ANSIBLE_STRATEGY="free"))
    assert "ANSIBLE_STRATEGY" not in environment
    listed = subprocess.check_output(
        ["ansible-inventory", "--list"], cwd=str(acceptance.PROJECT), env=environment
    )
    found = json.loads(listed.decode())
    for group in ("scheduler", "servers", "workers"):
        assert found[group]["hosts"] == ["node1"]
    known = found["_meta"]["hostvars"]["node1"]
    assert known["ansible_host"] == "10.20.0.7" and known["ansible_port"] == 2222
    assert known["ansible_user"] == "centos"
    assert known["el7_repos_mirror"] == "http://mirror/7"
    assert known["ansible_become"] is False  # the administrator's value
    # has_gpus and report look into the folders of the run.
    assert known["train_job_runs_dir"] == str(tmp_path / "runs")
    # preflight gives the host keys of two runs blocks of their own in known_hosts.
    assert known["mxcluster_state_dir"] == str(tmp_path / tmp_path.name)


@pytest.mark.parametrize(
    "text, found",
    [
        ("alpha", ("root", "alpha")),
        ("centos@10.20.0.7", ("centos", "10.20.0.7")),
        ("ann@gpu7.lab.example.org", ("ann", "gpu7.lab.example.org")),
    ],
)
def test_a_node_is_a_user_and_a_host(text, found):
    assert acceptance.split(text) == found


@pytest.mark.parametrize("text", ["", "@alpha", "ann@", "-oProxyCommand=x", "a b@alpha", "{{ x }}"])
def test_a_wrong_node_is_refused(text):
    with pytest.raises(acceptance.Refused, match="write molecule/el7/real.sh"):
        acceptance.split(text)


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "1: 2\n"])
def test_a_wrong_file_of_variables_is_refused(tmp_path, text):
    (tmp_path / "vars.yml").write_text(text)
    with pytest.raises(acceptance.Refused):
        acceptance.read_own(str(tmp_path / "vars.yml"))
    with pytest.raises(acceptance.Refused, match="correct --vars"):
        acceptance.read_own(str(tmp_path / "absent.yml"))


def test_a_refusal_has_the_status_of_a_wrong_command_line(tmp_path, capsys):
    assert acceptance.main(["alpha", "--folder", str(tmp_path)]) == 2
    assert "mxcluster: cannot make %s" % tmp_path in capsys.readouterr().err


def test_the_report_of_verify_gets_the_steps(tmp_path):
    outcome = Outcome(step="dry run", result=FAILED, seconds=1.5, why="gpu7 refused kanarienvogel")
    path = acceptance.report(tmp_path, "gpu7", [outcome])
    text = open(path).read()
    assert "node1 refused [hidden]" in text and "gpu7" not in text
    assert json.loads(text)["status"] == 2
    again = acceptance.report(tmp_path, "gpu7", [outcome, outcome])
    assert again == path and len(json.loads(open(path).read())["steps"]) == 2


def test_a_row_has_name_result_time_and_reason():
    outcome = Outcome(step="provision", result=FAILED, seconds=61.6, why="no room")
    assert acceptance.row(outcome) == "provision         failed     1:02  no room"
    assert max(len(step.name) for step in acceptance.steps(reset=True)) <= 17


def test_the_script_prints_its_help_without_an_environment(tmp_path):
    """It works from any folder, and the page about it names its options."""
    done = subprocess.run(
        ["bash", str(SCRIPT), "--help"], cwd=str(tmp_path), stdout=subprocess.PIPE, timeout=60
    )
    assert done.returncode == 0
    page = (acceptance.PROJECT / "docs" / "acceptance.md").read_text()
    options = set(re.findall(r"--[a-z]+", done.stdout.decode().partition("options:")[2])) - {
        "--help"
    }
    assert len(options) == 6
    for option in options:
        assert "`%s" % option in page, option
