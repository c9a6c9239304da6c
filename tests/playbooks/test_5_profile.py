"""profile.yml measures a cluster and proposes groups and shares, which later plans use."""

import json
import os
import re
import shlex
import shutil
import signal

import pytest
import yaml

LABELS = ("first pair", "second pair")
QUICK = ("-e", "step_ms=60", "-e", "batch_size=16")


@pytest.fixture(scope="session")
def unequal(project):
    """Return (the project, arguments): four nodes without labels, two of which pretend to be slow.

    The state and the cluster files of this inventory are its own.
    """
    folder = project.path / "inventory" / "unequal"
    shutil.copytree(str(project.path / "inventory" / "local"), str(folder))
    state = project.path / ".state"
    shutil.copytree(str(state / "local" / "nodes"), str(state / "unequal" / "nodes"))
    variables = yaml.safe_load((folder / "group_vars" / "all.yml").read_text())
    variables.update(
        mxcluster_state_dir=str(state / "unequal"),
        mxcluster_home=str(state / "local"),
        mxcluster_etc_dir=str(state / "unequal" / "etc"),
    )
    (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(variables))
    hosts, slow = folder / "hosts.yml", {"node3:": 2, "node4:": 4}
    lines = []
    for line in hosts.read_text().splitlines():
        if "worker_group" in line:
            continue
        lines.append(line)
        if line.strip() in slow and line.startswith(8 * " "):
            lines.append("          slowdown: %d" % slow[line.strip()])
    hosts.write_text("\n".join(lines) + "\n")
    return project, ("-i", "inventory/unequal")


@pytest.mark.alone
def test_one_command_measures_groups_and_trains(unequal):
    """With grouping=auto, train.yml runs profile.yml first; the second time it has a profile."""
    project, arguments = unequal
    result, run = project.train(
        *arguments,
        *QUICK,
        job_id="auto",
        kv="dist_gsync",
        grouping="auto",
        data_allocator=1,
        num_epochs=3,
    )
    assert result.code == 0, result.output
    profile = json.loads((project.path / "runs" / "auto-profile" / "profile.json").read_text())
    speeds = [worker["together"]["samples_per_s"] for worker in profile["workers"]]
    # 16 samples in 60 ms, and emulated slowness.
    assert speeds == pytest.approx([267, 267, 133, 67], rel=0.15), result.output
    assert profile["groups"] == [[0, 1], [2], [3]] and len(profile["placement"]) == 6
    verdict = json.loads((project.path / "runs" / "auto-profile" / "verdict.json").read_text())
    exchange = max(worker["exchange_s"] for worker in profile["workers"])
    check_comparison(project, "\n".join(verdict["proposal"]), exchange)
    plan = json.loads((run / "plan.json").read_text())
    assert plan["groups"] == profile["groups"] and plan["shares"] == profile["shares"]
    assert "the profile auto-profile of" in result.output
    for name in ("curves.png", "report.html"):
        assert (project.path / "runs" / "auto-profile" / name).exists()
    files = project.path / ".state" / "unequal" / "etc"
    assert len((files / "groups").read_text().split("\n")) == 4, (files / "groups").read_text()
    again, _ = project.train(
        *arguments, job_id="planned", kv="dist_gsync", grouping="auto", plan_only=True
    )
    log = project.ansible_log()
    assert again.code == 0 and "PLAY RECAP" in log and "PLAY [Write the profile" not in log, log
    assert "auto-profile" in again.output and "in 3 groups" in again.output
    assert re.search(r"by its speeds, 3 groups would compute \d+ % more samples/s", again.output)

    more = ("-e", json.dumps({"workers_per_host": 2}))
    result, _ = project.train(
        *arguments, *more, job_id="more", kv="dist_gsync", plan_only=True, num_workers=8
    )
    assert result.code == 0, result.output
    assert "has no speed of node1 worker 1" in result.output, "a new worker needs a new profile"
    assert "run profile.yml again" in result.output, result.output


def check_comparison(project, proposal, exchange):
    """Check the table of predictions at the end of profile.yml, and plan with its commands.

    The workers compute 267, 267, 133 and 67 samples/s, with 16 samples in a batch. How long their
    exchange takes, `exchange` seconds, depends on the load of this machine. From about
    0.2 s on, other rows are the best ones, and the row without slow workers may be missing.
    """
    text = proposal.split("predicted speed of each scheme")[1]
    rows = re.findall(r"^.*? (\d+) +\d+ % .* (kv=.*)$", text, re.MULTILINE)
    speeds = {knobs: int(speed) for speed, knobs in rows}
    fewer = [knobs for knobs in speeds if "dist_sync without_workers=" in knobs]
    for knobs, limit in (
        ("kv=dist_sync", 4 * 67),
        *((knobs, 2 * 267) for knobs in fewer),
        ("kv=dist_sync balance=batch", 733),
        ("kv=dist_gsync grouping=auto data_allocator=1", 733),
        ("kv=dist_ssync", 4 * 67),
        ("kv=dist_sync balance=deadline", 733),
        ("kv=dist_async data_allocator=1", 733),
    ):
        assert 0 < speeds[knobs] < 1.15 * limit, (knobs, text)
    assert speeds["kv=dist_sync"] < speeds["kv=dist_sync balance=batch"], text
    (line,) = re.findall("^use       ansible-playbook (.*)$", text, re.MULTILINE)
    if exchange > 0.1:
        return
    assert "/inventory/unequal train.yml -e batch_size=16 -e kv=dist_sync -e balance=" in line, text
    result = project.run(*shlex.split(line), "-e", "plan_only=true", "-e", "job_id=advised")
    assert result.code == 0 and "4 workers in 1 group" in result.output, result.output
    assert "first sizes: " in result.output, result.output
    (knobs,) = fewer
    named = [word for knob in knobs.split() for word in ("-e", knob)]
    where = ("-i", "inventory/unequal", "train.yml", "-e", "plan_only=true", "-e", "job_id=fewer")
    result = project.run(*where, *named)
    assert result.code == 0 and "no workers on " in result.output, result.output
    assert "node4" in knobs and " in 1 group, 2 servers" in result.output, result.output


def test_an_interrupted_measurement_names_the_job_that_goes_on(unequal):
    project, arguments = unequal
    kept = project.path / ".state" / "unequal" / "profile.json"
    before = kept.read_bytes() if kept.exists() else None
    options = {"job_id": "cut-short", "step_ms": 300, "lease": 2, "apply": True}
    process = project.start("profile.yml", *arguments, "-e", json.dumps(options))
    project.until(
        process,
        lambda: any(list(folder.glob("*.jsonl")) for folder in project.folders("cut-short")),
    )
    os.killpg(process.pid, signal.SIGINT)
    output = project.finish(process)
    assert process.returncode == 99, output
    text = output.split("LEFT      job cut-short, which still runs on its nodes. Its lease ends")[1]
    assert "the job 2 to 4 s after the last poll" in text, output
    assert "/inventory/unequal train.yml -e attach=cut-short" in text, output
    assert "/inventory/unequal stop.yml -e job=cut-short" in text, output
    project.wait_for_nothing_left(leased=True)
    assert (kept.read_bytes() if kept.exists() else None) == before


def test_check_mode_applies_nothing(unequal):
    """No job runs in check mode, so there is no profile to copy."""
    project, arguments = unequal
    kept = project.path / ".state" / "unequal" / "profile.json"
    before = kept.read_bytes() if kept.exists() else None
    result = project.run("profile.yml", "--check", *arguments, "-e", "apply=true")
    assert result.code == 0, result.output
    assert (kept.read_bytes() if kept.exists() else None) == before
