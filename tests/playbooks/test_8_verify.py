"""verify.yml checks the cluster; check mode asks the nodes and changes nothing."""

import json
import os

import yaml

from mxcluster.model.acceptance import Report
from tests.playbooks.conftest import NET

# A stand-in for a node with a slow CPU, disk and link: each product of matrices is ten products.
SLOW = """
import builtins, os, socket, time
with open("/proc/self/cmdline") as stream:
    command = stream.read()
write, fsync = socket.socket.sendall, os.fsync

def late(connection, piece):
    time.sleep(0.03 if len(piece) > 65536 else 0)
    return write(connection, piece)

def late_fsync(descriptor):
    time.sleep(3)
    fsync(descriptor)

if "numpy.dot" in command:
    real = builtins.__import__

    def late_import(name, *arguments, **options):
        module = real(name, *arguments, **options)
        if name == "numpy" and hasattr(module, "dot") and not hasattr(module, "fast_dot"):
            module.fast_dot = module.dot
            module.dot = lambda *both: [module.fast_dot(*both) for _ in range(10)][0]
        return module

    builtins.__import__ = late_import
elif "mxcluster.node.rendezvous" in command:
    socket.socket.sendall = late
elif "mxcluster.entry" in command:
    os.fsync = late_fsync
"""


def slow_environment(project, folder):
    """Make an environment of the nodes in `folder` whose Python is slow; return its path."""
    source, made = project.path / ".state" / "local" / "env", folder / "env"
    packages = next(source.glob("lib/python*/site-packages"))
    own = made / packages.relative_to(source)
    own.mkdir(parents=True)
    (made / "bin").mkdir()
    for path in packages.iterdir():
        (own / path.name).symlink_to(path)
    (made / "pyvenv.cfg").write_text((source / "pyvenv.cfg").read_text())
    (made / "bin" / "python").symlink_to(os.path.realpath(str(source / "bin" / "python")))
    (own / "slow_node.py").write_text(SLOW)
    (own / "slow_node.pth").write_text("import slow_node\n")
    return made


def lose(runs, job, host):
    """Write the run of a job that has lost the node `host`."""
    failure = {"host": host, "role": "agent", "name": "agent", "reason": "gone", "kind": "lost"}
    figures = {"accuracy": None, "samples_per_s": None, "seconds": 1, "exit_codes": {}}
    verdict = {"ok": False, "job": job, "kv": "dist_sync", "nodes": {host: "lost"}}
    (runs / job).mkdir(parents=True)
    (runs / job / "verdict.json").write_text(
        json.dumps(dict(verdict, first_failure=failure, **figures))
    )


def test_broken_and_slow(project, tmp_path):
    """The exit status is 1 for a failed check. A slow node and a twice lost node are named.

    test_0_cores.py and molecule verify clusters without a fault.
    """
    own = "          node_address: %s.13\n" % NET
    slow = "          mxcluster_env_dir: %s\n" % slow_environment(project, tmp_path)
    folder = project.inventory("slow", **{own: own + slow})
    with open(str(folder / "group_vars" / "all.yml"), "a") as stream:
        stream.write("train_job_runs_dir: %s\n" % (tmp_path / "runs"))
    for job, host in (("lost-1", "node2"), ("lost-2", "node2"), ("lost-3", "node4")):
        lose(tmp_path / "runs", job, host)
    refused = project.run("verify.yml", "-i", folder, "-e", "speed=maybe", "-e", "report=x")
    for knob in ("speed=maybe", "report=x"):
        assert refused.code == 2 and knob + " is refused: it must be true" in refused.output

    groups = project.path / ".state" / "local" / "etc" / "groups"
    good = groups.read_text()
    groups.write_text(good.replace(NET + ".12", NET + ".99"))
    try:
        result = project.run("verify.yml", "-i", folder, "-e", "speed=true", "-e", "report=true")
    finally:
        groups.write_text(good)
    assert result.code == 1, result.output
    verdict = json.loads((project.path / ".state" / "local" / "verify.json").read_text())
    assert verdict["status"] == 1 and len(verdict["checks"]) == 16
    last = project.ansible_log().split("PLAY RECAP")[1]
    assert "node3: groups line 1: '%s.99' is not a worker" % NET in last, last
    assert "; groups: worker %s.12 is in no group" % NET in last, last

    why = {line["check"].split(",")[0]: " ".join(line["why"]) for line in verdict["checks"]}
    found = json.loads((project.path / ".state" / "local" / "speeds.json").read_text())
    assert sorted(found["nodes"]) == ["node1", "node2", "node3", "node4"], found
    assert len(found["transfers"]) == 12, found
    for name, check in (
        ("matmul", "speed of matrix products"),
        ("write", "speed of disk writes"),
        ("bandwidth", "bandwidth between nodes"),
    ):
        assert found["nodes"]["node3"][name] < 0.7 * found["medians"][name], (name, found)
        assert "node3: " in why[check] and "median" in why[check], (why, last)
    lost = why["nodes of the last 20 jobs"]
    assert "node2: 2 of the last jobs have lost this node (lost-1 and lost-2)" in lost, lost
    assert "node4" not in lost and not project.folders("verify-*"), lost

    (path,) = (tmp_path / "runs").glob("acceptance-*.json")
    assert "report    %s" % path in last, last
    for word in (NET, str(project.path), str(project.home), os.uname().nodename):
        assert word not in path.read_text(), path.read_text()
    report = Report.decode(json.loads(path.read_text()))
    assert report.status == 1 and report.controller.ansible_core and len(report.checks) == 16
    assert [node.name for node in report.nodes] == ["node1", "node2", "node3", "node4"]
    for node in report.nodes:
        assert node.mxnet == "1.9.1" and node.system.versions["glibc"] and node.seconds["mxnet"]
    told = {line.check: line.why for line in report.checks}
    assert "node3: groups line 1: '[hidden]' is not a worker. The workers are [hidden]" in " ".join(
        told["hosts, groups and data_sharding as planned"]
    ), told


def test_silent(project):
    """The exit status is 2 for a node without an answer."""
    folder = project.inventory("silent")
    hosts = yaml.safe_load((folder / "hosts.yml").read_text())
    node4 = hosts["all"]["children"]["workers"]["hosts"]["node4"]
    node4.update(ansible_connection="ssh", ansible_host=NET + ".99", ansible_port=1)
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts, sort_keys=False))
    result = project.run("verify.yml", "-i", folder)
    assert result.code == 2, result.output
    last = project.ansible_log().split("PLAY RECAP")[1]
    assert (
        "node4 (%s.99, port 1): cannot reach the node" % NET in result.output
        and "node4 does not answer" in last
    )
    for words in (
        "ok        MXNet has the distributed kv-store",
        "not run   clocks: not all nodes answer",
    ):
        assert words in last and words in result.output, (last, result.output)


def test_check_mode_starts_nothing(project):
    before = project.jobs()
    result, run = project.train("--check", detach=True)
    assert result.code == 0 and not run.exists() and project.jobs() == before, result.output
    assert "STARTED" not in result.output and not project.folders(run.name), result.output
    speeds = project.path / ".state" / "local" / "speeds.json"
    speeds.unlink(missing_ok=True)
    result = project.run("verify.yml", "--check", "-e", "speed=true")
    for words in ("clocks: a dry run starts no rendezvous", "speed of disk writes: no node has a"):
        assert result.code == 0 and "not run   " + words in result.output, result.output
    assert not speeds.exists()
    assert not project.processes()
