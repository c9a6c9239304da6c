"""Measure plans and provision.yml with nothing to do at several cluster sizes, and one large job.

The controller and all nodes are this machine. The hosts of the inventory share one environment, as
in the local inventory. For provision.yml the benchmark prints the CPU seconds of the controller and
the CPU seconds of all processes.
"""

import json
import os
import pathlib
import re
import resource
import sys
import tempfile
import time

from bench._controller_cpu import WORDS
from bench._nodes import PROJECT, say
from mxcluster.job.plan import inputs
from mxcluster.model.inventory import Inventory
from tests.networks import own_network

WORKERS = (100, 300, 1000)
HOSTS = (10, 30, 100)
JOB = {
    "num_workers": 32,
    "num_servers": 4,
    "kv": "dist_sync",
    "num_epochs": 40,
    # All processes share this machine's cores.
    "env": {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
}
ACCURACY = 0.95


def main(options):
    """Print the figures for HOSTS and WORKERS, and the figures of a job with many workers.

    Args: `options` of the command line, not used.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for count in HOSTS:
            nothing_to_do(folder / str(count), count)
        record = json.loads(next((folder / "10" / "state" / "nodes").glob("*.json")).read_text())
        for count in WORKERS:
            print(
                "a plan for %4d workers: %.2f s" % (count, plan(folder, record, count)), flush=True
            )
        large_job(folder / "32")


def inventory(folder, count, workers, servers=1, net=None):
    """Write an inventory of `count` hosts that are all this machine, and return its folder.

    Args: `workers` of each host; `servers` of the cluster; `net` the second number of the hosts'
    addresses, by default the network of this process. Clusters that run at the same time need
    different networks. At most 249 hosts.
    """
    network = own_network() if net is None else "127.%d.0" % net
    hosts = {
        "node%d" % number: {"node_address": "%s.%d" % (network, 1 + number)}
        for number in range(count)
    }
    everything = {
        "vars": {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "ansible_become": False,
            "mxcluster_user": "",
            "mxcluster_home": str(folder.parent / "home"),
            "mxcluster_etc_dir": str(folder / "etc"),
            "mxcluster_state_dir": str(folder / "state"),
            "mxcluster_job_dir": str(folder / "jobs" / "{{ inventory_hostname }}"),
            "ssh_mesh_mode": "none",
            "mxnet_python": "{{ ansible_playbook_python }}",
            "mxnet_version": "1.9.1",
            "cuda_version": "",
            "train_job_runs_dir": str(folder / "runs"),
            "workers_per_host": workers,
        },
        "children": {
            "scheduler": {"hosts": {"node0": {}}},
            "servers": {"hosts": {host: {} for host in list(hosts)[:servers]}},
            "workers": {"hosts": hosts},
        },
    }
    (folder / "inventory").mkdir(parents=True)
    # JSON is valid YAML
    (folder / "inventory" / "hosts.yml").write_text(json.dumps({"all": everything}))
    return folder / "inventory"


def nothing_to_do(folder, count):
    """Provision `count` hosts twice, and print the seconds and CPU seconds of the second run."""
    where = inventory(folder, count, 1)
    say("ansible-playbook", "-i", where, "provision.yml", "-f", count)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    output = say(
        sys.executable, "bench/_controller_cpu.py", "-i", where, "provision.yml", "-f", count
    )
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if set(re.findall(r"changed=(\d+)", output)) != {"0"}:
        sys.exit(output)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    own = float(output.rpartition(WORDS)[2])
    print(
        "provision.yml with nothing to do, %3d hosts: %5.1f s; CPU time for each host: %.2f s on "
        "the controller, %.2f s of all processes" % (count, seconds, own / count, cpu / count),
        flush=True,
    )


def plan(folder, record, count):
    """Return the seconds to make a plan of `count` workers, each on its own host.

    Args: `folder` for the node records; `record` the pattern of these records.
    """
    records = folder / ("records-%d" % count)
    records.mkdir()
    hosts = {}
    for number in range(count):
        name, address = "node%d" % number, "10.1.%d.%d" % (number // 250, 1 + number % 250)
        (records / (name + ".json")).write_text(
            json.dumps(
                dict(
                    record,
                    host=name,
                    hostname=name,
                    interfaces={"eth0": [address + "/16"]},
                    address_of_default_route=address,
                )
            )
        )
        hosts[name] = {}
    groups = {"scheduler": ["node0"], "servers": list(hosts)[:16], "workers": list(hosts)}
    began = time.monotonic()
    planned = inputs.plan_job(
        {"kv": "dist_sync"},
        Inventory(groups=groups, hosts=hosts, forks=count),
        inputs.Folders(str(records), str(folder / "runs"), str(PROJECT)),
    )
    if planned.plan.workers != count:
        sys.exit("the plan for %d workers has %d workers" % (count, planned.plan.workers))
    return time.monotonic() - began


def large_job(folder):
    """Train the digits with many workers; check that no process of the job is left."""
    where = inventory(folder, 4, JOB["num_workers"] // 4, JOB["num_servers"])
    say("ansible-playbook", "-i", where, "provision.yml")
    output = say(
        "ansible-playbook", "-i", where, "train.yml", "-e", json.dumps(dict(JOB, job_id="large"))
    )
    verdict = json.loads((folder / "runs" / "large" / "verdict.json").read_text())
    left = [
        pid
        for pid in os.listdir("/proc")
        if pid.isdigit() and str(folder / "jobs").encode() in command(pid)
    ]
    if left:
        sys.exit("%s\nleftover processes: %s" % (output, left))
    if not verdict["ok"] or verdict["accuracy"] < ACCURACY:
        sys.exit("%s\nthe job failed, or its accuracy is below %g" % (output, ACCURACY))
    print(
        "%d workers and %d servers, %d epochs: accuracy %.3f after %.0f s; no leftover process"
        % (
            JOB["num_workers"],
            JOB["num_servers"],
            JOB["num_epochs"],
            verdict["accuracy"],
            verdict["seconds"],
        )
    )


def command(pid):
    """Return the command line of the process `pid` as bytes, b"" once the process has ended."""
    try:
        return pathlib.Path("/proc/%s/cmdline" % pid).read_bytes()
    except OSError:
        return b""
