"""The action plugin mxcluster_record: the files about what runs, after the start of a job."""

import json
import sys

from mxcluster.job.plan import packed
from plugins.action import mxcluster_record
from tests.ansible_modules import carry_out
from tests.unit.job.report import fake_run

SECRET = "hush-77ab"


def record(tmp_path, monkeypatch, check=False, **more):
    plan = fake_run.make_plan(workers=4, groups=1, kv="dist_sync", servers=1)
    words = ["ansible-playbook", "train.yml", "-e", "lr=0.2 token=" + SECRET, "-e", "lr=0.2"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(mxcluster_record.context, "CLIARGS", {"args": ("train.yml",)})
    machine = {"cpu": "EPYC \x1b[31mred", "cores": 2, "memory_mb": 2048, "kernel": "3.10.0"}
    look = {"problems": [], "held": {"ports": {}, "gpus": {}}, "fits": True, "machine": machine}
    looks = {"node1": dict(look, changed=False), "node2": {"msg": "failed"}, "localhost": {}}
    return carry_out(
        mxcluster_record,
        check,
        run_dir=str(tmp_path / "runs" / plan.job),
        packed_plan=packed.summary(plan, {}).packed_plan,
        script="",
        options={"lr": "0.05", "kv": "dist_sync", "batch_size": 32},
        given=["lr", "secret_env"],
        looks=looks,
        records_dir=str(tmp_path / "nodes"),
        inventory=["/site/hosts.yml"],
        **more,
    ), tmp_path / "runs" / plan.job


def test_the_record_has_command_versions_and_machines_but_no_secret(tmp_path, monkeypatch):
    result, run = record(tmp_path, monkeypatch)
    assert result["changed"] and not result.get("failed"), result
    found = json.loads((run / "run.json").read_text())
    assert found["command"][2:4] == ["-e", "lr=0.2 token=***"]
    assert found["nodes"]["node1"]["cpu"] == "EPYC red" and found["nodes"]["node2"]["cpu"] == ""
    assert found["given"]["lr"] == "0.05" and found["resolved"]["num_epochs"]
    # The kv of the plan differs from the default, and -e does not name it.
    assert "lr" not in found["of_inventory"] and set(found["of_inventory"]) < set(found["given"])
    assert found["inventory"] == ["/site/hosts.yml"] and found["controller"]["ansible_core"]
    assert found["ended"] is None and found["begun"][-6] in "+-"
    assert "Give secret_env again" in (run / "knobs.yml").read_text()
    assert not [path for path in run.iterdir() if SECRET in path.read_text()]


def test_check_mode_writes_nothing(tmp_path, monkeypatch):
    result, run = record(tmp_path, monkeypatch, check=True)
    assert result["changed"] and not run.exists()


def test_a_record_that_cannot_be_written_does_not_end_the_job(tmp_path, monkeypatch):
    (tmp_path / "runs").write_text("a file")
    warned = []
    monkeypatch.setattr(mxcluster_record.Display, "warning", lambda self, text: warned.append(text))
    result, _ = record(tmp_path, monkeypatch)
    assert not result["changed"] and not result.get("failed")
    assert "the run folder has no record of what runs" in warned[0]
