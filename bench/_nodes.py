"""Containers that stand for nodes, made of the image of molecule's scenarios (tools/node-image.sh), and their inventory.

Needs a docker engine and root, as `make molecule` does.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

PROJECT = pathlib.Path(__file__).resolve().parents[1]
NETWORK, SUBNET = "mxcluster-bench", "172.29.30"
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def say(*argv, stdin=None):
    """What a program prints; the benchmark ends with its words if it fails."""
    done = subprocess.run([str(word) for word in argv], input=stdin, cwd=PROJECT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit("%s\nended with status %d" % (done.stdout.decode(errors="replace"), done.returncode))
    return done.stdout.decode().strip()


def address(number):
    """Of a node; the first is number 1."""
    return "%s.%d" % (SUBNET, 10 + number)


def enter(number):
    """The command that runs what follows it in a node."""
    return "docker", "exec", "--interactive", "mxcluster-bench%d" % number


@contextlib.contextmanager
def nodes(count):
    """A folder with an inventory of so many containers: one scheduler, one server, and a worker on every node."""
    say("tools/docker-engine.sh")
    image = say("tools/node-image.sh").splitlines()[-1]
    _remove()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            _write_inventory(folder, _make(folder, count, image))
            yield folder
        finally:
            _remove()


def _make(folder, count, image):
    """Containers with the controller's key; returns their host keys by name."""
    say("docker", "network", "create", "--internal", "--subnet", SUBNET + ".0/24", NETWORK)
    say("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key")
    keys = {}
    for number in range(1, count + 1):
        say("docker", "run", "--detach", "--name", "mxcluster-bench%d" % number, "--hostname", "node%d" % number,
            "--network", NETWORK, "--ip", address(number), "--stop-signal", "SIGRTMIN+3",
            "--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--cgroupns", "private",
            "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:ro",
            "--tmpfs", "/run", "--tmpfs", "/run/lock", image)
    time.sleep(5)
    for number in range(1, count + 1):
        public = (folder / "key.pub").read_bytes()
        say(*enter(number), "sh", "-c", "umask 077; mkdir -p ~/.ssh; cat > ~/.ssh/authorized_keys", stdin=public)
        keys["node%d" % number] = say(*enter(number), "cut", "-d ", "-f1,2", "/etc/ssh/ssh_host_ed25519_key.pub")
    return keys


def _remove():
    """All that an earlier run may have left, too."""
    left = say("docker", "ps", "--all", "--quiet", "--filter", "name=^mxcluster-bench").split()
    if left:
        say("docker", "rm", "--force", *left)
    subprocess.run(["docker", "network", "rm", NETWORK], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _write_inventory(folder, keys):
    hosts = {name: {"ansible_host": address(number), "node_host_key": key} for number, (name, key) in enumerate(keys.items(), 1)}
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
