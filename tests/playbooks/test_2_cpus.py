"""train.yml with cpus: the processes of a host have CPUs of their own."""

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
if os.environ["MXCLUSTER_INDEX"] == "0":
    with open("cpus.json", "w") as stream:
        json.dump(found, stream)
kv._barrier()
"""


def test_the_processes_of_a_host_have_cpus_of_their_own(pair, tmp_path):
    script = tmp_path / "affinities.py"
    script.write_text(AFFINITIES)
    result, run = pair.train(script=str(script), kv="dist_sync", cpus="0-1", env={})
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
    columns = [line.split()[6] for line in result.output.splitlines() if line[:6] == "worker"]
    assert columns == ["1", "0-1"] and "  CPUs  " in result.output, result.output
