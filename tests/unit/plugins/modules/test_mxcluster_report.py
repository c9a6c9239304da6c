import json
import os
import subprocess
import sys
from pathlib import Path

from tests.unit.report import fake_run

MODULE = Path(__file__).parents[4] / "plugins" / "modules" / "mxcluster_report.py"


def run_module(tmp_path, python_path=None, **params):
    """What the module answers, run as Ansible runs it; modules in the folder `python_path` hide others."""
    environment = dict(os.environ)
    if python_path:
        environment["PYTHONPATH"] = os.pathsep.join([str(python_path), environment.get("PYTHONPATH", "")])
    (tmp_path / "args.json").write_text(json.dumps({"ANSIBLE_MODULE_ARGS": params}))
    done = subprocess.run([sys.executable, str(MODULE), str(tmp_path / "args.json")], capture_output=True, text=True,
                          timeout=60, cwd=str(tmp_path), env=environment)
    assert done.stdout.strip().startswith("{"), done
    return dict(json.loads(done.stdout), rc=done.returncode)


def test_a_failed_job_is_reported_and_does_not_fail_the_module(tmp_path):
    plan = fake_run.make_plan(workers=2, groups=1, kv="dist_sync", servers=1)
    archives = fake_run.make_archives(str(tmp_path / "nodes"), plan, epochs=2, batches=4, until=1.9,
                                      failed=("server-0", -9, ["out of breath"]))
    run_dir = os.path.join("runs", plan["job"])
    answer = run_module(tmp_path, run_dir=run_dir, plan=plan, archives=archives, cache_dir="cache")
    assert answer["rc"] == 0 and answer["changed"] is True, answer
    assert answer["verdict"] == json.loads((tmp_path / run_dir / "verdict.json").read_text())
    assert answer["text"][1] == "first     server 0 on node1: killed by signal 9 (SIGKILL)", answer["text"]
    assert answer["text"][-1] == "report    %s/report.html" % run_dir
    assert answer["mxcluster_verdict_text"] == answer["text"]
    assert answer["report"] == str(tmp_path / run_dir / "report.html") and os.path.exists(answer["report"])
    assert (tmp_path / "cache").is_dir()


def test_check_mode_writes_nothing(tmp_path):
    answer = run_module(tmp_path, run_dir="runs/j", plan=fake_run.make_plan(), _ansible_check_mode=True)
    assert (answer["rc"], answer["changed"], answer["verdict"], answer["text"]) == (0, True, {}, []), answer
    assert not (tmp_path / "runs").exists()


def test_a_folder_without_a_plan_is_refused(tmp_path):
    answer = run_module(tmp_path, run_dir="runs/j")
    assert answer["rc"] == 1 and "has no plan.json" in answer["msg"], answer


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "runs").write_text("a file")
    answer = run_module(tmp_path, run_dir="runs/j", plan=fake_run.make_plan())
    assert answer["rc"] == 1 and "could not be written" in answer["msg"] and "runs/j" in answer["msg"], answer


def test_a_python_without_mxcluster_is_told_what_to_install(tmp_path):
    (tmp_path / "mxcluster.py").write_text("raise ImportError('No module named mxcluster')")
    answer = run_module(tmp_path, tmp_path, run_dir="runs/j", plan=fake_run.make_plan())
    assert answer["rc"] == 1, answer
    assert "mxcluster" in answer["msg"] and "pip install -r requirements.txt" in answer["msg"], answer


def test_a_python_without_matplotlib_is_told_what_to_install(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('No module named matplotlib')")
    plan = fake_run.make_plan(workers=2, groups=1)
    archives = fake_run.make_archives(str(tmp_path / "nodes"), plan, epochs=1, batches=2)
    answer = run_module(tmp_path, tmp_path, run_dir="runs/j", plan=plan, archives=archives)
    assert answer["rc"] == 1 and "needs jinja2 and matplotlib" in answer["msg"], answer
    assert json.loads((tmp_path / "runs" / "j" / "verdict.json").read_text())["ok"], "the verdict is there all the same"


def test_what_the_controller_has_heard_besides_is_in_the_verdict(tmp_path):
    plan = fake_run.make_plan(workers=2, groups=1, kv="dist_sync", servers=1)
    archives = fake_run.make_archives(str(tmp_path / "nodes"), plan, epochs=2, batches=4)
    last = sorted(plan["nodes"])[-1]
    archives.pop(last)
    waits = {host: {"ended": True, "packed": {"left": [], "problem": None}} for host in archives}
    waits[last] = {"unreachable": True, "ended": True, "lost": {"since": 5.0, "why": "No route to host"}}
    answer = run_module(tmp_path, run_dir="runs/j", plan=plan, archives=archives, waits=waits)
    assert "%s is gone" % last in answer["verdict"]["first_failure"]["reason"], answer
    assert answer["verdict"]["left"] == {host: [] for host in archives}


def test_an_end_that_root_has_not_seen_fails_the_job(tmp_path):
    """All files of the node say that its part is done: they are the training user's."""
    plan = fake_run.make_plan(workers=2, groups=1, kv="dist_sync", servers=1)
    archives = fake_run.make_archives(str(tmp_path / "nodes"), plan, epochs=2, batches=4)
    waits = {host: {"ended": True, "packed": {"left": [], "problem": None}} for host in archives}
    assert run_module(tmp_path, run_dir="runs/j", plan=plan, archives=archives, waits=waits)["verdict"]["ok"]
    waits["node1"]["packed"]["untrue"] = "it was told that its part was done, but its agent has failed"
    verdict = run_module(tmp_path, run_dir="runs/k", plan=plan, archives=archives, waits=waits)["verdict"]
    assert not verdict["ok"] and verdict["first_failure"]["host"] == "node1"
    assert verdict["first_failure"]["reason"] == waits["node1"]["packed"]["untrue"]


def test_a_node_that_could_not_be_contacted_is_named_and_the_others_are_here(tmp_path):
    plan = fake_run.make_plan(workers=4, groups=1, kv="dist_sync", servers=1)
    archives = fake_run.make_archives(str(tmp_path / "nodes"), plan, epochs=2, batches=4)
    archives["node2"] = str(tmp_path / "nothing.tar")
    contacts = {"node1": {"user": "root"}, "node2": {"lost": {"since": 5.0, "why": "No route to host"}}}
    verdict = run_module(tmp_path, run_dir="runs/j", plan=plan, archives=archives, contacts=contacts)["verdict"]
    assert verdict["first_failure"]["host"] == "node2" and "No route to host" in verdict["first_failure"]["reason"], verdict
    assert verdict["nodes"] == {"node1": "done", "node2": "missing"}
    assert (tmp_path / "runs" / "j" / "nodes" / "node1" / "worker-0.log").exists()


def test_archives_that_a_killed_controller_left_are_removed(tmp_path):
    """Those of a controller that is collecting stay."""
    plan = fake_run.make_plan(workers=2, groups=1, kv="dist_sync", servers=1)
    for job in ("j", "killed", "collecting"):
        (tmp_path / "collected" / job).mkdir(parents=True)
        (tmp_path / "collected" / job / "node1.tar").write_text(job)
    for path in [*tmp_path.glob("collected/killed/*"), tmp_path / "collected" / "killed", tmp_path / "collected" / "collecting"]:
        os.utime(str(path), (1, 1))
    run_module(tmp_path, run_dir="runs/j", plan=plan, archives={}, collected=str(tmp_path / "collected"))
    assert os.listdir(str(tmp_path / "collected")) == ["collecting"]


def test_the_status_that_was_waited_for_counts_where_none_could_be_packed(tmp_path):
    plan = fake_run.make_plan(workers=2, groups=1, kv="dist_sync", servers=1)
    archives = fake_run.make_archives(str(tmp_path / "nodes"), plan, epochs=2, batches=4)
    last = sorted(plan["nodes"])[-1]
    archives.pop(last)
    cause = {"host": last, "role": "worker", "index": 1, "name": "worker-1", "reason": "exited with status 1", "exit_code": 1,
             "time": 5.0, "log": ["OSError: [Errno 28] No space left on device"], "echo": False, "kind": None}
    status = {"job": plan["job"], "host": last, "agent": {"pid": 7, "start_time": 8}, "state": "ended", "reason": "failed",
              "started": 1.0, "ended": 6.0, "processes": [], "first_failure": cause}
    packed = {"left": [], "problem": "what it has left could not be packed: No space left on device"}
    answer = run_module(tmp_path, run_dir="runs/j", plan=plan, archives=archives,
                        waits={last: {"status": status, "packed": packed}})
    assert answer["verdict"]["first_failure"] == cause, answer
