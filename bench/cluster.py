"""What provisioning and starting cost on containers: 2, 4 and 8 nodes side by side, over real sshd.

The nodes are those of molecule's scenarios (tools/node-image.sh). Needs a docker engine and root, as `make molecule` does.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

PROJECT = pathlib.Path(__file__).resolve().parents[1]
NETWORK, SUBNET = "mxcluster-bench", "172.29.30"
SIZES, ROUNDS = (2, 4, 8), 3
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def say(*argv, stdin=None):
    """What a program prints; the benchmark ends with its words if it fails."""
    done = subprocess.run([str(word) for word in argv], input=stdin, cwd=PROJECT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit("%s\nended with status %d" % (done.stdout.decode(errors="replace"), done.returncode))
    return done.stdout.decode().strip()


def make_nodes(folder, count, image):
    """Containers with the controller's key; returns their host keys by name."""
    say("docker", "network", "create", "--internal", "--subnet", SUBNET + ".0/24", NETWORK)
    say("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key")
    keys = {}
    for number in range(1, count + 1):
        say("docker", "run", "--detach", "--name", "mxcluster-bench%d" % number, "--hostname", "node%d" % number,
            "--network", NETWORK, "--ip", "%s.%d" % (SUBNET, 10 + number), "--stop-signal", "SIGRTMIN+3",
            "--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--cgroupns", "private",
            "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:ro",
            "--tmpfs", "/run", "--tmpfs", "/run/lock", image)
    time.sleep(5)
    for number in range(1, count + 1):
        enter = ("docker", "exec", "--interactive", "mxcluster-bench%d" % number)
        public = (folder / "key.pub").read_bytes()
        say(*enter, "sh", "-c", "umask 077; mkdir -p ~/.ssh; cat > ~/.ssh/authorized_keys", stdin=public)
        keys["node%d" % number] = say(*enter, "cut", "-d ", "-f1,2", "/etc/ssh/ssh_host_ed25519_key.pub")
    return keys


def remove_nodes():
    """All that an earlier run may have left, too."""
    left = say("docker", "ps", "--all", "--quiet", "--filter", "name=^mxcluster-bench").split()
    if left:
        say("docker", "rm", "--force", *left)
    subprocess.run(["docker", "network", "rm", NETWORK], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def write_inventory(folder, keys):
    """One scheduler, one server, and a worker on every node."""
    hosts = {name: {"ansible_host": "%s.%d" % (SUBNET, 10 + number), "node_host_key": key}
             for number, (name, key) in enumerate(keys.items(), 1)}
    everything = {"vars": {"ansible_user": "root", "ansible_ssh_private_key_file": str(folder / "key"),
                           "mxcluster_state_dir": str(folder / "state"), "train_job_runs_dir": str(folder / "runs"),
                           "mxnet_version": "1.9.1", "train_job_env": THREADS},
                  "children": {"scheduler": {"hosts": {"node1": {}}}, "servers": {"hosts": {"node1": {}}},
                               "workers": {"hosts": hosts}}}
    (folder / "inventory").mkdir()
    (folder / "inventory" / "hosts.yml").write_text(json.dumps({"all": everything}))  # JSON is YAML


def play(folder, *arguments):
    """(seconds, output) of a playbook."""
    began = time.monotonic()
    output = say("ansible-playbook", "-i", folder / "inventory", *arguments)
    return time.monotonic() - began, output


def first_step(folder, number):
    """{what: seconds} of one job, from the command to the first batch that a worker has trained, and on to the end."""
    job = "bench-%d" % number
    command = time.time()
    os.environ["ANSIBLE_CALLBACKS_ENABLED"] = "ansible.posix.profile_tasks"
    seconds, output = play(folder, "train.yml", "-e", "num_epochs=2", "-e", "job_id=" + job)
    events = [json.loads(line) for line in (folder / "runs" / job / "events.jsonl").read_text().splitlines()]
    batch = min(event["time"] for event in events if event["event"] == "batch")
    tasks = {}
    for name, spent in re.findall(r"^(.+?) -{3,} +([\d.]+)s$", output, re.MULTILINE):
        tasks[name.split(" : ")[-1].strip()] = float(spent)
    started = json.loads((folder / "runs" / job / "nodes" / "node1" / "status.json").read_text())["started"]
    return {"to the start of the agents": started - command,
            "from there (the meeting, MXNet's import, the data) to the first step": batch - started,
            "to the first step": batch - command, "to the verdict": seconds}, tasks


def main():
    """Prints the figures."""
    say("tools/docker-engine.sh")
    image = say("tools/node-image.sh").splitlines()[-1]
    noop = {}
    for count in SIZES:
        remove_nodes()
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            try:
                write_inventory(folder, make_nodes(folder, count, image))
                first, _ = play(folder, "provision.yml")
                times = []
                for _ in range(ROUNDS):
                    seconds, output = play(folder, "provision.yml")
                    assert set(re.findall(r"changed=(\d+)", output)) == {"0"}, output
                    times.append(seconds)
                noop[count] = statistics.median(times)
                print("%d nodes: provision.yml on bare ones %.1f s, with nothing to do %.1f s (%.1f .. %.1f)"
                      % (count, first, noop[count], min(times), max(times)), flush=True)
                if count == 4:
                    jobs = [first_step(folder, number) for number in range(ROUNDS)]
                    for what in jobs[0][0]:
                        found = [job[0][what] for job in jobs]
                        print("  train.yml %s: %.1f s (%.1f .. %.1f)" % (what, statistics.median(found), min(found), max(found)))
                    slowest = sorted(jobs[-1][1].items(), key=lambda task: -task[1])[:10]
                    print("  the longest tasks: " + ", ".join("%s %.1f s" % task for task in slowest), flush=True)
            finally:
                remove_nodes()
    print("a node more costs %.2f s of a provision.yml with nothing to do (2 to 8 nodes)" % ((noop[8] - noop[2]) / 6))
