"""Guards of a job: max_time, a stop that saves, expect_accuracy, notify and the site's hooks."""

import json

import pytest
import yaml

from mxcluster import checkpoints
from tests.playbooks.conftest import role
from tests.waiting import until

LONG = "import time\ntime.sleep(3600)\n"
# It saves in its second worker as soon as a file exists, and a later job goes on from there.
SAVES = """
import os
import time

import mxnet as mx

kv = mx.kv.create("dist_sync")
path = os.path.join(os.environ["MXCLUSTER_CHECKPOINTS"], "round")
begun = int(open(path).read()) if os.path.exists(path) else 0
print("BEGAN after round %%d" %% begun, flush=True)
number, go = 0, %r
while not begun and not os.path.exists(go + "-no-more"):
    time.sleep(0.1)
    if os.environ["MXCLUSTER_INDEX"] == "1" and os.path.exists(go):
        number += 1
        with open(path, "w") as stream:
            stream.write(str(number))
        time.sleep(6)  # longer than the quiet time that makes a checkpoint of the file
"""
# The last lines of a failed process go into the verdict, and hooks of the site read the verdict.
HOSTILE = "{{ 1 + 1 }} {{ lookup('ansible.builtin.pipe', 'touch %s') }}"
NO_SHELL = "a; b $(c) `d` &|*"  # the name of a file, and commands for a shell
FAILS = "import sys\nsys.exit(%r)\n"
BEFORE = """
- name: Write a file before the job
  ansible.builtin.copy:
    content: ""
    dest: "%s/before-{{ inventory_hostname }}"
    mode: "0644"
"""
AFTER = """
- name: Write the verdict after the job
  ansible.builtin.copy:
    content: "{{ train_job_verdict.first_failure.log | join('|') }}"
    dest: "%s/after-{{ inventory_hostname }}"
    mode: "0644"
"""
# As sudo, but it changes no user.
SUDO = '#!/bin/sh\nexport BECAME=root\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n'
WHO = """
- name: Run as the login user
  ansible.builtin.command: sh -c 'echo ${BECAME:-login}'
- name: Run as root
  ansible.builtin.command: sh -c 'echo ${BECAME:-login}'
  become: true
"""


def script(folder, text):
    """Write a script into its own folder, and return its path."""
    (folder / "script").mkdir(exist_ok=True)
    (folder / "script" / "it.py").write_text(text)
    return str(folder / "script" / "it.py")


def test_a_job_ends_after_its_max_time(pair, tmp_path):
    result, run = pair.train(
        kv="dist_sync",
        script=script(tmp_path, LONG),
        start_timeout=0,
        max_time="3s",
        job_id="timed",
    )
    assert result.code == 2, result.output
    assert "TIME      job timed (dist_sync) after " in result.output, result.output
    assert "its max_time of 3 s" in result.output and "FAILED" not in result.output, result.output
    assert "next      the job has no checkpoint: start it again" in result.output, result.output
    verdict = json.loads((run / "verdict.json").read_text())
    assert (verdict["ok"], verdict["first_failure"]["kind"]) == (False, "time")
    assert list(run.glob("nodes/*/worker-1.log")), "what was collected stays"
    pair.wait_for_nothing_left()


def test_a_stop_waits_for_the_next_checkpoint(pair):
    """The stopped job goes on from the checkpoint that the stop has waited for."""
    options = {"kv": "dist_sync", "num_epochs": 100000, "savemodel": True, "detach": True}
    options.update(keep_checkpoints=1, keep_best=True, step_ms=20)
    result, run = pair.train(job_id="saved", lr=0.001, **options)
    assert result.code == 0, result.output
    result = pair.run("stop.yml", "-e", "job=saved", "-e", "save=true", "--check")
    assert result.code == 0 and "would be ended on node1 node2" in result.output, result.output
    result = pair.run("stop.yml", "-e", "job=saved", "-e", "save=true", "-e", "save_timeout=200s")
    assert result.code == 0, result.output
    (line,) = [one for one in result.output.splitlines() if one.startswith("saved ")]
    epoch = int(line.rpartition("mlp-")[2])
    assert "next      train.yml -e attach=saved" in result.output, result.output
    pair.wait_for_nothing_left()

    result = pair.run("train.yml", "-e", "attach=saved")
    assert result.code == 2 and "STOPPED   job saved" in result.output, result.output
    kept = run / "checkpoints"
    last = checkpoints.last_complete(str(kept), "mlp")[0].epoch
    assert last >= epoch >= 1
    best = checkpoints.best(str(kept), "mlp")
    assert (
        "next      train.yml -e resume=saved, from the checkpoint mlp-%04d" % last in result.output
    )
    assert "best      the checkpoint %s, by its accuracy" % best in result.output, result.output
    whole = {path.stem for path in kept.glob("mlp-[0-9]*.json") if "." not in path.stem}
    assert whole == {best, "mlp-%04d" % last}
    result, _ = pair.train(resume="saved", num_epochs=last + 1, plan_only=True)
    assert result.code == 0 and "after epoch %d" % last in result.output, result.output


@pytest.mark.soak  # as the test before, which has no refusal
def test_a_stop_waits_for_the_files_of_a_script(pair, tmp_path):
    """The stop is refused until the script has saved. Another worker than worker 0 may save."""
    go = tmp_path / "go"
    text = script(tmp_path, SAVES % str(go))
    result, run = pair.train(kv="dist_sync", script=text, detach=True, job_id="plain")
    assert result.code == 0, result.output
    result = pair.run("stop.yml", "-e", "job=plain", "-e", "save=true")
    assert result.code != 0, result.output
    assert "save=true is refused for the job plain, which has saved no checkpoint" in result.output
    assert pair.status("plain", "node1")["state"] == "running", "a refusal stops nothing"
    result = pair.run("stop.yml", "-e", "job=plain", "-e", "save=perhaps")
    assert result.code != 0 and pair.status("plain", "node1")["state"] == "running", result.output

    go.touch()
    (folder,) = [one for one in pair.folders("plain") if one.parent.name == "node2"]
    until(lambda: list(folder.glob("checkpoints/worker-1-*.json")), evidence=pair.logs)
    result = pair.run("stop.yml", "-e", "job=plain", "-e", "save=true", "-e", "save_timeout=200s")
    assert result.code == 0, result.output
    (line,) = [one for one in result.output.splitlines() if one.startswith("saved ")]
    saved = int(line.rpartition("the checkpoint worker-1-")[2])
    pair.wait_for_nothing_left()

    result = pair.run("train.yml", "-e", "attach=plain")
    assert result.code == 2 and "STOPPED   job plain" in result.output, result.output
    last = checkpoints.last_complete(str(run / "checkpoints"), "worker-1")[0]
    assert last.epoch >= saved >= 2, result.output
    assert "-e resume=plain, from the checkpoint %s" % last.name in result.output, result.output
    (tmp_path / "go-no-more").touch()  # a job that begins anew ends, too
    result, run = pair.train(resume="plain", job_id="goes-on-plain")
    assert result.code == 0 and last.name + ", with 1 file" in result.output, result.output
    logs = [path.read_text() for path in run.glob("nodes/*/worker-*.log")]
    assert len(logs) == 2 and all("BEGAN after round %d" % last.epoch in log for log in logs), logs


def test_a_stop_says_what_is_lost(pair):
    # An epoch of this job lasts longer than any test.
    slow = {"kv": "dist_sync", "savemodel": True, "step_ms": 3600000, "stall_timeout": 0}
    result, _ = pair.train(detach=True, job_id="slow", **slow)
    assert result.code == 0, result.output
    result = pair.run("stop.yml", "-e", "job=slow", "-e", "save=true", "-e", "save_timeout=2")
    assert result.code == 0, result.output
    assert "lost      all training of the job" in result.output, result.output
    pair.wait_for_nothing_left()


def test_the_hooks_of_a_site_run_once(pair, tmp_path):
    """A node's text stays text in the site's tasks, and an attach does not repeat the tasks."""
    text = HOSTILE % (tmp_path / "touched")
    (tmp_path / "before.yml").write_text(BEFORE % tmp_path)
    (tmp_path / "after.yml").write_text(AFTER % tmp_path)
    options = {
        "kv": "dist_sync",
        "script": script(tmp_path, FAILS % text),
        "tasks_before": [str(tmp_path / "before.yml")],
        "tasks_after": [str(tmp_path / "after.yml")],
        "notify_command": ["cp", "/dev/stdin", str(tmp_path / NO_SHELL)],
        "job_id": "hooked",
    }
    result, run = pair.train(**options)
    assert result.code == 2, result.output
    verdict = (run / "verdict.json").read_text()
    assert json.loads((tmp_path / NO_SHELL).read_text()) == json.loads(verdict)
    assert not {"notify_command", "tasks_before", "tasks_after"} & set(
        yaml.safe_load((run / "knobs.yml").read_text())
    ), "the file repeats the job, and no hook"
    for host in ("node1", "node2"):
        assert (tmp_path / ("before-" + host)).exists(), result.output
        assert text in (tmp_path / ("after-" + host)).read_text(), result.output
        (tmp_path / ("after-" + host)).unlink()
    assert not (tmp_path / "touched").exists(), "no template of a node may run"

    hook = "tasks_after=%s" % (tmp_path / "after.yml")
    result = pair.run("train.yml", "-e", "attach=hooked", "-e", hook)
    assert result.code == 2 and "FAILED    job hooked" in result.output, result.output
    assert not list(tmp_path.glob("after-*")), result.output
    pair.wait_for_nothing_left()


@pytest.mark.parametrize(
    "tasks, words",
    [
        (None, "wrong.yml is no file on this controller"),
        ("- hosts: all\n", "wrong.yml is a playbook"),
        ("- name: Fail\n  ansible.builtin.fail:\n    msg: no such mount\n", "no such mount"),
    ],
    ids=["missing", "playbook", "failing"],
)
def test_a_wrong_hook_starts_no_job(pair, tmp_path, tasks, words):
    if tasks:
        (tmp_path / "wrong.yml").write_text(tasks)
    result, run = pair.train(
        kv="dist_sync", tasks_before=str(tmp_path / "wrong.yml"), job_id="unhooked"
    )
    assert result.code != 0 and words in result.output, result.output
    assert not run.exists() and pair.folders("unhooked") == []


def test_a_job_below_its_expected_accuracy_fails(pair):
    result, run = pair.train(
        kv="dist_sync", num_epochs=2, expect_accuracy=1, max_time="1h", job_id="expected"
    )
    assert result.code == 2, result.output
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["first_failure"]["kind"] == "learning" and set(
        verdict["exit_codes"].values()
    ) == {0}
    assert "is below expect_accuracy=1" in result.output, result.output


def test_the_tasks_of_a_site_become_root_only_by_their_own_word(play, tmp_path, monkeypatch):
    """The inventory of a cluster has `ansible_become: true`, which has priority over a keyword."""
    # Root need not become root, so Ansible would skip sudo.
    monkeypatch.setenv("ANSIBLE_BECOME_ALLOW_SAME_USER", "1")
    sudo, tasks = tmp_path / "sudo", tmp_path / "who.yml"
    sudo.write_text(SUDO)
    sudo.chmod(0o755)
    tasks.write_text(WHO)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text(
        json.dumps({"ansible_become": True, "ansible_become_exe": str(sudo)})
    )
    results = play(
        role("train_job", "after.yml"),
        train_job_planned={"job": "one", "hooks": {"after": [str(tasks)]}},
        __train_job_last={"verdict": {"ok": True}},
        __train_job_after_mark=str(tmp_path / "mark"),
    )
    assert not results["refused"], results
    assert results["train_job : Run as the login user"]["stdout"] == "login"
    assert results["train_job : Run as root"]["stdout"] == "root"
    assert (tmp_path / "mark").exists()
