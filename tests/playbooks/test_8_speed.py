"""CPUs of their own for the processes of a host, and the speeds that verify.yml measures."""

import json
import os

from tests.playbooks.conftest import NET

# Worker 0 reads the affinity of all processes of its job, which share this machine.
AFFINITIES = """
import json, os
import mxnet as mx
kv = mx.kv.create(os.environ["MXCLUSTER_KV"])
found = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open("/proc/%s/environ" % pid) as stream:
            env = dict(one.split("=", 1) for one in stream.read().split(chr(0)) if "=" in one)
        if env.get("MXCLUSTER_JOB") == os.environ["MXCLUSTER_JOB"] and "MXCLUSTER_ROLE" in env:
            name = "%s-%s" % (env["MXCLUSTER_ROLE"], env["MXCLUSTER_INDEX"])
            found[name] = [sorted(os.sched_getaffinity(int(pid))), env.get("OMP_NUM_THREADS")]
    except OSError:
        continue
if kv.rank == 0:
    with open("cpus.json", "w") as stream:
        json.dump(found, stream)
kv._barrier()
"""


def test_the_processes_of_a_host_have_cpus_of_their_own(project, pair, tmp_path):
    script = tmp_path / "affinities.py"
    script.write_text(AFFINITIES)
    options = {"script": str(script), "kv": "dist_sync", "env": {}}
    refused, run = project.train(*pair.where, cpus="0,1,8000", **options)
    assert refused.code != 0 and not run.exists(), refused.output
    assert "node1: cpus=0-1,8000, but the node gives the CPUs " in refused.output, refused.output

    result, run = project.train(*pair.where, cpus="0-1", **options)
    assert result.code == 0, result.output
    with open(str(run / "nodes" / "node1" / "files" / "worker-0" / "cpus.json")) as stream:
        found = json.load(stream)
    everything = sorted(os.sched_getaffinity(0))
    assert found == {
        "scheduler-0": [everything, None],
        "server-0": [[0], "1"],
        "worker-0": [[1], "1"],
        "worker-1": [[0, 1], "2"],
    }, found
    lines = [line.split() for line in project.ansible_log().splitlines() if " worker " in line]
    assert "CPUs" in project.ansible_log() and lines, project.ansible_log()


# A stand-in for a node with a throttled CPU, a slow disk and a slow link. The product of matrices
# stands still nine tenths of the time, as under a quota.
SLOW = """
import os, signal, socket, time
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
    parent = os.getpid()
    if os.fork() == 0:
        for descriptor in range(3):
            os.close(descriptor)
        while os.getppid() == parent:
            os.kill(parent, signal.SIGSTOP)
            time.sleep(0.18)
            os.kill(parent, signal.SIGCONT)
            time.sleep(0.02)
        os._exit(0)
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


def test_a_slow_node_and_a_node_that_was_lost_twice_are_named(project, tmp_path):
    slow = "          node_address: %s.13\n" % NET
    environment = slow_environment(project, tmp_path)
    folder = project.inventory(
        "slow", **{slow: slow + "          mxcluster_env_dir: %s\n" % environment}
    )
    with open(str(folder / "group_vars" / "all.yml"), "a") as stream:
        stream.write("train_job_runs_dir: %s\n" % (tmp_path / "runs"))
    lose(tmp_path / "runs", "lost-1", "node2")
    lose(tmp_path / "runs", "lost-2", "node2")
    lose(tmp_path / "runs", "lost-3", "node4")
    speeds = project.path / ".state" / "local" / "speeds.json"

    for arguments, words in (
        (["-e", "speed=maybe"], "speed=maybe is refused: it must be true or false"),
        (["-e", "speed=true", "--limit", "node1:localhost"], "--limit leaves out node2, node3, no"),
    ):
        refused = project.run("verify.yml", "-i", folder, *arguments)
        assert refused.code != 0 and words in refused.output, refused.output
    dry = project.run("verify.yml", "-i", folder, "-e", "speed=true", "--check")
    assert dry.code == 0 and not speeds.exists(), dry.output
    assert "not run   bandwidth between nodes: no node has a figure: a dry run" in dry.output

    result = project.run("verify.yml", "-i", folder, "-e", "speed=true")
    assert result.code == 0, result.output
    found = json.loads(speeds.read_text())
    assert sorted(found["nodes"]) == ["node1", "node2", "node3", "node4"], found
    assert len(found["transfers"]) == 12, found
    for name, words in (
        ("matmul", "speed of matrix products"),
        ("write", "speed of disk writes"),
        ("bandwidth", "bandwidth between nodes"),
    ):
        assert found["nodes"]["node3"][name] < 0.7 * found["medians"][name], (name, found)
        part = result.output.split("warning   " + words)[1]
        assert "node3: " in part.split("\nok ")[0].split("\nwarning ")[0], result.output
    assert "node2: 2 of the last jobs have lost this node (lost-1 and lost-2)" in result.output
    assert "node4: 1 of the last" not in result.output, result.output
    assert not project.processes()
    left = [path for path in (project.path / ".state" / "local" / "jobs").glob("*/*") if path]
    assert not [path for path in left if "verify" in path.name], left
