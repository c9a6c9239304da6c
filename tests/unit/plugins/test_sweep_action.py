"""The action plugin mxcluster_sweep, which connects a sweep with this ansible-playbook."""

import sys

import pytest

from mxcluster.errors import BadInput
from mxcluster.job.plan import inputs
from plugins.action import mxcluster_sweep as plugin
from tests.unit.job.sweep.cluster import planned

GIVEN = {
    "options": {"lr": "0.1"},
    "given": ["sweep", "networks", "worker_counts", "lr"],
    "inventory": {"groups": {}, "hosts": {}},
    "forks": 5,
    "records_dir": "nodes",
    "cwd": "/",
    "secrets": {},
    "cache_dir": "cache",
    "plan_only": False,
}


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Return sweep(*playbooks, **arguments), which gives the task's result and starts no job."""
    program = tmp_path / "ansible-playbook"
    program.write_text("")
    monkeypatch.setattr(sys, "argv", [str(program), "benchmark.yml"])
    started = []

    def start(knobs, show, own, playbook):
        started.append((playbook, own, knobs))
        return 4

    def plan_job(options, *others, anew):
        given = {name: value for name, value in options.items() if name != "job_id"}
        return inputs.Planned(plan=planned(given), table="", looks={})

    monkeypatch.setattr(plugin.attempts, "run", start)
    monkeypatch.setattr(plugin.attempts, "end_with_parent", lambda: None)
    monkeypatch.setattr(inputs, "plan_job", plan_job)

    def run(*playbooks, check=False, cliargs=None, **changed):
        args = playbooks or ("/project/benchmark.yml",)
        monkeypatch.setattr(plugin.context, "CLIARGS", dict(cliargs or {}, args=args))
        knobs = {"sweep": "mine", "networks": "mlp", "worker_counts": "1,2"}
        given = dict(GIVEN, knobs=knobs, runs_dir=str(tmp_path / "runs"))
        arguments = plugin.Arguments.decode(dict(given, **changed))
        return plugin.carry_out(arguments, check).encode()

    run.started = started
    run.runs = tmp_path / "runs"
    return run


@pytest.mark.parametrize("how", [{"check": True}, {"plan_only": True}])
def test_a_dry_run_starts_and_writes_nothing(sweep, how):
    result = sweep(**how)
    assert result["verdict"]["ok"] and not result.get("changed") and not sweep.started
    assert result["mxcluster_verdict_text"][0] == "benchmark.yml of 2 jobs, in runs/mine"
    assert not sweep.runs.exists()


def test_a_job_is_train_yml_with_the_command_line_of_the_sweep(sweep):
    with pytest.raises(BadInput, match="ended with exit status 4 and no verdict"):
        sweep()
    ((playbook, own, knobs),) = sweep.started
    assert (playbook, own) == ("train.yml", "/project/benchmark.yml")
    assert knobs["job_id"] == "mine-001" and knobs["lr"] == 0.1 and knobs["network"] == "mlp"


def test_an_interrupted_job_is_ended_first(sweep):
    for _ in range(2):
        with pytest.raises(BadInput):
            sweep()
    assert sweep.started[1] == (
        "stop.yml",
        "/project/benchmark.yml",
        {"job": "mine-001", "all": False},
    )
    assert [one[0] for one in sweep.started] == ["train.yml", "stop.yml", "train.yml"]


def test_two_playbooks_are_refused(sweep):
    with pytest.raises(BadInput, match="run the playbooks one by one"):
        sweep("benchmark.yml", "compare.yml")


def test_a_password_is_refused(sweep):
    with pytest.raises(BadInput, match="Ansible would prompt for a password again"):
        sweep(cliargs={"ask_pass": True})
    assert not sweep.started
