"""The files run.json, knobs.yml and script.zip of a run folder."""

import base64
import json
import subprocess

import pytest
import yaml
from ansible.utils.unsafe_proxy import AnsibleUnsafeText

from mxcluster.errors import BadInput
from mxcluster.job import user_script, what_ran
from mxcluster.job.report import ended_record, files, what_ran_panel
from mxcluster.model.answers import Held, Looked
from mxcluster.model.job_knobs import Options
from mxcluster.model.run_record import (
    MACHINE,
    Controller,
    Hardware,
    NodeOfRun,
    RunRecord,
    moment,
    now,
)
from mxcluster.model.status import Process, Status
from tests.unit.job.report import fake_run


def plan_of(**options):
    plan = fake_run.make_plan(workers=2, groups=1, kv="dist_sync", servers=1)
    return plan.replaced(options=Options(**options))


def record_of(plan, **fields):
    known = Controller(mxcluster="0.1.0", package="m.zip", ansible_core="2.16", python="3.11")
    return RunRecord(
        **dict(
            {
                "job": plan.job,
                "command": ["ansible-playbook"],
                "inventory": [],
                "controller": known,
                "nodes": {},
                "given": {},
                "resolved": plan.options,
                "begun": now(),
            },
            **fields,
        )
    )


def git(folder, *words):
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *author, *words], check=True, timeout=30)


def test_given_knobs_are_those_of_the_user_that_the_job_could_read():
    plan = plan_of(lr=0.2, num_workers=2, script="")
    written = {
        "lr": "0.2",
        "num_workers": 5,
        "batch_size": "32",
        "queue": "long",
        "kv": "dist_sync",
    }
    found = what_ran.given_knobs(plan, written, ["batch_size", "queue", "secret_env"])
    assert found == {"lr": "0.2", "num_workers": "5", "batch_size": "32"}


def test_a_vault_is_no_value_of_a_record():
    class Vault:
        def __str__(self):
            return "hush"

    plan = plan_of(env={"A": "hush"})
    assert what_ran.given_knobs(plan, {"env": {"A": Vault()}}, ["env"]) == {"env": '{"A": "***"}'}


def test_the_run_repeats_with_the_kept_code(tmp_path):
    script = tmp_path / "repo" / "scripts" / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text("import mxnet\n")
    root, run = str(tmp_path / "repo"), str(tmp_path / "runs" / "j")
    options = {"script": str(script), "script_root": root, "script_args": ["--lr", "0.1"]}
    plan = plan_of(**options)
    packed = user_script.pack(str(script), ["3.11.2"], root)[0]
    given = what_ran.given_knobs(
        plan, dict(options, script="repo/scripts/train.py", job_id="j"), ["script", "job_id"]
    )
    record = record_of(plan, given=given, code=what_ran.code(plan.options, packed))
    what_ran.write(run, record, plan.options, packed, ["secret_env"])
    text = (tmp_path / "runs" / "j" / "knobs.yml").read_text()
    assert text.startswith("# ansible-playbook train.yml -e @%s/knobs.yml repeats the job" % run)
    assert "Give secret_env again" in text
    assert yaml.safe_load(text) == {
        "script": run + "/script.zip/scripts/train.py",
        "script_root": run + "/script.zip",
        "script_args": ["--lr", "0.1"],
    }
    again = user_script.pack(run + "/script.zip/scripts/train.py", [], run + "/script.zip")
    assert again == (packed, [])
    assert files.read_record(run) == record and record.code.path == "scripts/train.py"
    assert base64.b64decode(packed) == (tmp_path / "runs" / "j" / "script.zip").read_bytes()


@pytest.mark.parametrize(
    "text, value",
    [
        ("0.10", "0.10"),
        ("[ -f x ] && y", "[ -f x ] && y"),
        ('{"A": "1"}', {"A": "1"}),
        ("[1]", [1]),
        (AnsibleUnsafeText("dist_sync"), "dist_sync"),
    ],
)
def test_knobs_keep_their_text(tmp_path, text, value):
    plan = plan_of()
    what_ran.write(str(tmp_path), record_of(plan, given={"env": text}), plan.options, "")
    assert yaml.safe_load((tmp_path / "knobs.yml").read_text()) == {"env": value}


def test_the_end_of_a_job_is_recorded_once(tmp_path):
    plan = plan_of()
    what_ran.write(str(tmp_path), record_of(plan), plan.options, "")
    ended_record.end(str(tmp_path), plan)
    ended = files.read_record(str(tmp_path)).ended
    assert ended and ended[-6] in "+-"
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace(ended, "2026-11-27T09:30:00+01:00"))
    ended_record.end(str(tmp_path), plan)
    assert files.read_record(str(tmp_path)).ended == "2026-11-27T09:30:00+01:00"
    path.write_text(json.dumps({"job": "../x"}))
    with pytest.raises(BadInput, match="run.json"):
        files.read_record(str(tmp_path))


HARDWARE = {"cpu": "Xeon", "cores": 8, "kernel": "3.10.0"}


def test_a_controller_that_attached_makes_a_record_of_what_is_known(tmp_path):
    plan = plan_of()
    host = next(iter(plan.nodes))
    folder = tmp_path / "nodes" / host
    folder.mkdir(parents=True)
    node = NodeOfRun(python="3.6.8", mxnet="1.2.1", **HARDWARE)
    (folder / MACHINE).write_text(json.dumps(node.encode()))
    status = Status(
        job=plan.job,
        host=host,
        kv="",
        agent=Process(pid=1, start_time=1),
        started=1e9,
        processes=[],
    )
    (folder / "status.json").write_text(json.dumps(status.encode()))
    ended_record.end(str(tmp_path), plan)
    record = files.read_record(str(tmp_path))
    assert record.attached and record.nodes[host] == node and record.resolved == plan.options
    assert record.begun == moment(1e9) and record.ended and record.controller is None
    facts = dict(what_ran_panel.facts(record))
    assert "attached to the job" in facts["Record"] and "mxcluster" not in facts


@pytest.mark.parametrize("text", ["{", '{"cores": -1}', '{"cpu": ["x"]}', "[]"])
def test_a_damaged_file_of_a_node_leaves_its_hardware_unknown(tmp_path, text):
    plan = plan_of()
    host = next(iter(plan.nodes))
    (tmp_path / "nodes" / host).mkdir(parents=True)
    (tmp_path / "nodes" / host / MACHINE).write_text(text)
    ended_record.end(str(tmp_path), plan)
    assert files.read_record(str(tmp_path)).nodes[host] == NodeOfRun()


def test_the_nodes_of_a_batch_job_replace_the_submit_host(tmp_path):
    plan = plan_of()
    host = next(iter(plan.nodes))
    written = record_of(plan).replaced(nodes={"submit": NodeOfRun(cores=2)})
    what_ran.write(str(tmp_path), written, plan.options, "")
    (tmp_path / "nodes" / host).mkdir(parents=True)
    (tmp_path / "nodes" / host / MACHINE).write_text(json.dumps(HARDWARE))
    ended_record.end(str(tmp_path), plan)
    record = files.read_record(str(tmp_path))
    assert record.nodes[host] == NodeOfRun(**HARDWARE) and not record.attached
    assert list(record.nodes) == list(plan.nodes)


def test_the_state_of_a_git_clone(tmp_path):
    (tmp_path / "scripts").mkdir()
    assert what_ran.clone(str(tmp_path)) is None
    git(tmp_path, "init", "-q")
    assert what_ran.clone(str(tmp_path)) is None, "a clone without a commit"
    (tmp_path / "scripts" / "train.py").write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "x")
    found = what_ran.clone(str(tmp_path / "scripts"))
    assert len(found.commit) == 40 and found.clean
    (tmp_path / "beside").write_text("")
    assert what_ran.clone(str(tmp_path / "scripts")).clean, "only the folder that travels counts"
    (tmp_path / "scripts" / "new.py").write_text("")
    assert not what_ran.clone(str(tmp_path / "scripts")).clean


def test_the_nodes_have_their_hardware_and_versions(tmp_path):
    plan = plan_of()
    hardware = Hardware(cpu="EPYC", cores=2, memory_mb=1024, gpus=["V100"], kernel="3.10.0")
    seen = Looked(problems=[], held=Held(ports={}, gpus={}), fits=True, machine=hardware)
    host = list(plan.nodes)[0]
    found = what_ran.nodes(plan, {host: seen}, str(tmp_path))
    assert set(found) == set(plan.nodes)
    assert found[host].cpu == "EPYC" and found[host].gpus == ["V100"] and found[host].mxnet == ""
