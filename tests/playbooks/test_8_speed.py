"""CPUs of their own for the processes of a host, and the speeds that verify.yml measures."""

import json
import os

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


def test_the_processes_of_a_host_have_cpus_of_their_own(pair, tmp_path):
    script = tmp_path / "affinities.py"
    script.write_text(AFFINITIES)
    options = {"script": str(script), "kv": "dist_sync", "env": {}}
    refused, run = pair.train(cpus="0,1,9999", **options)
    assert refused.code != 0 and not run.exists(), refused.output
    assert "node1: cpus=0-1,9999, but the node gives the CPUs " in refused.output, refused.output

    result, run = pair.train(cpus="0-1", **options)
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
    lines = [line.split() for line in pair.ansible_log().splitlines() if " worker " in line]
    assert "CPUs" in pair.ansible_log() and lines, pair.ansible_log()
