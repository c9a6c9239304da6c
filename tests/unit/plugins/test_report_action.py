"""The action plugin mxcluster_report: the verdict and the report after any end of a job."""

import json
import os
import shutil
import sys

import pytest

from mxcluster.ansible import controller_task
from mxcluster.job.plan import packed
from plugins.action import mxcluster_report
from tests.ansible_modules import carry_out
from tests.unit import statuses
from tests.unit.job.report import fake_run


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return run(run_dir, plan, archives, argument=value, ...), the task in its own folder."""
    monkeypatch.chdir(tmp_path)

    def go(run_dir, plan, archives=None, check=False, **params):
        collected = tmp_path / "collected" / os.path.basename(run_dir)
        for host, path in (archives or {}).items():
            collected.mkdir(parents=True, exist_ok=True)
            if os.path.exists(path):
                shutil.copy(path, str(collected / (host + ".tar")))
        return carry_out(
            mxcluster_report,
            check,
            run_dir=run_dir,
            packed_plan=packed.summary(plan, {}).packed_plan,
            collected=str(tmp_path / "collected"),
            **params,
        )

    return go


def job_of(tmp_path, workers=2, **more):
    """Return the plan and the archives of a job; `more` as for `fake_run.make_archives`."""
    plan = fake_run.make_plan(workers=workers, groups=1, kv="dist_sync", servers=1)
    folder = str(tmp_path / "nodes")
    return plan, fake_run.make_archives(folder, plan, epochs=2, batches=4, **more)


@pytest.mark.slow
def test_a_failed_job_is_reported_and_does_not_fail_the_task(run, tmp_path):
    plan, archives = job_of(tmp_path, until=1.9, failed=("server-0", -9, ["out of breath"]))
    run_dir = os.path.join("runs", plan.job)
    answer = run(run_dir=run_dir, plan=plan, archives=archives, cache_dir="cache")
    assert not answer.get("failed") and answer["changed"] is True, answer
    assert answer["verdict"] == json.loads((tmp_path / run_dir / "verdict.json").read_text())
    text = answer["text"]
    assert text[1] == "first     server 0 on node1: killed by signal 9 (SIGKILL)", text
    assert text[-1] == "report    %s/report.html" % run_dir
    assert answer["mxcluster_verdict_text"] == text
    report = tmp_path / run_dir / "report.html"
    assert answer["report"] == str(report) and report.exists()
    assert (tmp_path / "cache").is_dir()


@pytest.mark.slow
def test_the_verdict_is_in_the_file_that_the_environment_names(run, tmp_path, monkeypatch):
    """`mxcluster launch` finds the true exit status there."""
    monkeypatch.setenv(mxcluster_report.VERDICT_FILE, str(tmp_path / "verdict"))
    plan, archives = job_of(tmp_path, until=1.9, failed=("worker-0", 3, []))
    answer = run(run_dir=os.path.join("runs", plan.job), plan=plan, archives=archives)
    verdict = json.loads((tmp_path / "verdict").read_text())
    assert verdict == answer["verdict"] and verdict["first_failure"]["exit_code"] == 3
    assert (tmp_path / "verdict").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_created_is_named(run, tmp_path):
    (tmp_path / "runs").write_text("a file")
    answer = run(run_dir="runs/j", plan=fake_run.make_plan())
    assert answer["failed"] and "cannot write the report" in answer["msg"], answer
    assert "runs/j" in answer["msg"], answer


def test_without_matplotlib_the_message_says_what_to_install(run, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("matplotlib")] + ["matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "mxcluster.job.report.curves", raising=False)
    plan = fake_run.make_plan(workers=2, groups=1)
    archives = fake_run.make_archives(str(tmp_path / "nodes"), plan, epochs=1, batches=2)
    answer = run(run_dir="runs/j", plan=plan, archives=archives)
    assert answer["failed"] and "needs jinja2 and matplotlib" in answer["msg"], answer
    assert json.loads((tmp_path / "runs" / "j" / "verdict.json").read_text())["ok"], (
        "the verdict must exist"
    )


def test_losses_and_leftovers_of_the_waits_are_in_the_verdict(run, tmp_path):
    plan, archives = job_of(tmp_path)
    last = sorted(plan.nodes)[-1]
    archives.pop(last)
    waits = {host: {"ended": True, "packed": {"left": [], "problem": None}} for host in archives}
    lost = {"since": 5.0, "why": "No route to host"}
    waits[last] = {"unreachable": True, "ended": True, "lost": lost}
    answer = run(run_dir="runs/j", plan=plan, archives=archives, waits=waits)
    assert "%s is gone" % last in answer["verdict"]["first_failure"]["reason"], answer
    assert answer["verdict"]["left"] == {host: [] for host in archives}


def test_results_of_nodes_are_read_without_templating(tmp_path):
    """Ansible evaluates no template in them."""

    class Hostvars(dict):
        raw_get = dict.get

    hostvars = Hostvars(a={"waited": {"msg": "{{ evil }}"}}, b={})
    found = controller_task.registered("waited", {"hostvars": hostvars})
    assert found == {"a": {"msg": "{{ evil }}"}, "b": {}} and found["a"] is hostvars["a"]["waited"]
    assert controller_task.registered({"a": 1}, {}) == {"a": 1}


@pytest.mark.slow
def test_an_unreachable_node_is_named_and_the_others_are_collected(run, tmp_path):
    plan, archives = job_of(tmp_path, workers=4)
    archives["node2"] = str(tmp_path / "nothing.tar")
    lost = {"since": 5.0, "why": "No route to host"}
    contacts = {"node1": {"user": "root"}, "node2": {"lost": lost}}
    verdict = run(run_dir="runs/j", plan=plan, archives=archives, contacts=contacts)["verdict"]
    assert verdict["first_failure"]["host"] == "node2", verdict
    assert "No route to host" in verdict["first_failure"]["reason"], verdict
    assert verdict["nodes"] == {"node1": "done", "node2": "missing"}
    assert (tmp_path / "runs" / "j" / "nodes" / "node1" / "worker-0.log").exists()


def test_archives_of_a_killed_controller_are_removed(run, tmp_path):
    """Archives of a controller that is still collecting stay."""
    plan = fake_run.make_plan(workers=2, groups=1, kv="dist_sync", servers=1)
    for job in ("j", "killed", "collecting"):
        (tmp_path / "collected" / job).mkdir(parents=True)
        (tmp_path / "collected" / job / "node1.tar").write_text(job)
    for path in [
        *tmp_path.glob("collected/killed/*"),
        tmp_path / "collected" / "killed",
        tmp_path / "collected" / "collecting",
    ]:
        os.utime(str(path), (1, 1))
    run(run_dir="runs/j", plan=plan, archives={})
    assert os.listdir(str(tmp_path / "collected")) == ["collecting"]


def test_the_status_of_the_wait_counts_without_an_archive(run, tmp_path):
    plan, archives = job_of(tmp_path)
    last = sorted(plan.nodes)[-1]
    archives.pop(last)
    cause = {"host": last, "name": "worker-1", "reason": "exited with status 1", "exit_code": 1}
    cause.update(time=5.0, log=["OSError: [Errno 28] No space left"], kind="program")
    cause = statuses.failure(cause).encode()
    status = {"job": plan.job, "host": last, "state": "ended", "reason": "failed", "ended": 6.0}
    status = statuses.status(dict(status, processes=[], first_failure=cause)).encode()
    waits = {last: {"status": status, "packed": {"left": [], "problem": "cannot pack the files"}}}
    answer = run(run_dir="runs/j", plan=plan, archives=archives, waits=waits)
    assert answer["verdict"]["first_failure"] == cause, answer


@pytest.fixture
def killed(run, tmp_path, monkeypatch):
    """Return killed(program), which gives the answer about a job after a SIGKILL."""
    plan, archives = job_of(tmp_path, until=1.9, failed=("server-0", -9, ["gone"]))
    plan = plan.replaced(options=plan.options.replaced(max_restarts=2, restart_delay=7.0))

    def go(program, restart=True):
        monkeypatch.setattr(sys, "argv", [str(program), "train.yml"])
        run_dir = os.path.join("runs", plan.job)
        return run(run_dir=run_dir, plan=plan, archives=archives, restart=restart)

    return go


@pytest.mark.slow
def test_the_next_attempt_of_a_killed_job(killed, tmp_path, monkeypatch):
    program = tmp_path / "ansible-playbook"
    program.write_text("")
    answer = killed(program)
    assert answer["restart"]["delay"] == 7 and answer["restart"]["extra"]["max_restarts"] == 1
    assert not [line for line in answer["text"] if "RESTART" in line]
    assert killed(program, restart=False)["restart"] is None
    monkeypatch.setenv("MXCLUSTER_ATTEMPT", "1")
    assert killed(program)["restart"] is None, "the first command decides"


@pytest.mark.slow
def test_no_attempt_without_ansible_playbook(killed, tmp_path):
    answer = killed(tmp_path / "molecule")
    assert answer["restart"] is None
    assert answer["text"][-1] == (
        "RESTART   no: this run was not started with ansible-playbook: start the run with "
        "ansible-playbook"
    )
