"""Start containers as nodes for the benchmarks, and write their inventory.

The image is that of the molecule scenarios, from tools/node-image.sh. The containers need a docker
engine and root, as for `make molecule`.
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
LOGIN = "admin"  # the image's user who is not root
# The options and the command of a container, for its first process.
SYSTEMD = (
    *"--stop-signal SIGRTMIN+3 --cgroupns private --cap-add SYS_ADMIN --cap-add NET_ADMIN".split(),
    *"--tmpfs /run --tmpfs /run/lock --volume /sys/fs/cgroup:/sys/fs/cgroup:ro IMAGE".split(),
)
SSHD = (
    *"IMAGE bash -c".split(),
    "mkdir -p /run/sshd; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key; "
    "/usr/sbin/sshd -D; false",  # bash stays, and reaps all processes
)

# Waits until sshd answers. The first start of sshd makes the host keys.
ANSWERS = (
    "until [ -s /etc/ssh/ssh_host_ed25519_key.pub ] && (: </dev/tcp/127.0.0.1/22); do sleep 0.1; "
    "done 2>/dev/null"
)


def say(*argv, stdin=None):
    """Run the program with the command line `argv` and return its output.

    If the program fails, exit with its output. Args: `stdin` bytes for the program.
    """
    done = subprocess.run(
        [str(word) for word in argv],
        input=stdin,
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(
            "%s\nthe program ended with status %d"
            % (done.stdout.decode(errors="replace"), done.returncode)
        )
    return done.stdout.decode().strip()


def address(number):
    """Return the IPv4 address of a container; the first one has the number 1."""
    return "%s.%d" % (SUBNET, 10 + number)


def enter(number):
    """Return the first words of a command line that runs in the container `number`."""
    return "docker", "exec", "--interactive", "mxcluster-bench%d" % number


@contextlib.contextmanager
def nodes(count, systemd=True):
    """Run the block with `count` containers; yield the folder with their inventory.

    The inventory has one scheduler, one server, and a worker on every node. The containers are
    removed at the end.

    Args: `systemd` is False for containers whose CPU time `limit` limits: systemd would leave the
    control group of its container. Then the first node is no worker, and a user who is not root
    trains.
    """
    say("tools/docker-engine.sh")
    image = say("tools/node-image.sh").splitlines()[-1]
    _remove()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            _write_inventory(folder, _make(folder, count, image, systemd), systemd)
            yield folder
        finally:
            _remove()


def limit(number, cpus):
    """Limit the CPU time of the container `number` to so many `cpus` (float)."""
    say("docker", "update", "--cpus", cpus, enter(number)[-1])


def _make(folder, count, image, systemd):
    """Start `count` containers from `image`, and return {node: its host key}.

    `systemd` is that of `nodes`. The containers accept a new SSH key, whose private key is the file
    `key` in `folder`.
    """
    say("docker", "network", "create", "--internal", "--subnet", SUBNET + ".0/24", NETWORK)
    say("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key")
    keys = {}
    for number in range(1, count + 1):
        say(
            *"docker run --detach".split(),
            *("--name mxcluster-bench%d --hostname node%d" % (number, number)).split(),
            *("--network %s --ip %s" % (NETWORK, address(number))).split(),
            *(image if word == "IMAGE" else word for word in (SYSTEMD if systemd else SSHD)),
        )
    for number in range(1, count + 1):
        say(*enter(number), *"timeout 120 bash -c".split(), ANSWERS)
        public = (folder / "key.pub").read_bytes()
        say(
            *"docker exec --interactive --user".split(),
            "root" if systemd else LOGIN,
            *enter(number)[-1:],
            "sh",
            "-c",
            "umask 077; mkdir -p ~/.ssh; cat > ~/.ssh/authorized_keys",
            stdin=public,
        )
        # A user's nodes compile Ansible's modules each time.
        say(*enter(number), "rm", "/usr/lib/python3/dist-packages/module_bytecode.pth")
        keys["node%d" % number] = say(
            *enter(number), "cut", "-d ", "-f1,2", "/etc/ssh/ssh_host_ed25519_key.pub"
        )
    return keys


def _remove():
    """Remove the containers and the network of this benchmark and of an earlier run."""
    left = say("docker", "ps", "--all", "--quiet", "--filter", "name=^mxcluster-bench").split()
    if left:
        say("docker", "rm", "--force", *left)
    subprocess.run(
        ["docker", "network", "rm", NETWORK], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _write_inventory(folder, keys, systemd):
    """Write the inventory of the nodes with the host `keys`; `systemd` is that of `nodes`."""
    hosts = {
        name: {"ansible_host": address(number), "node_host_key": key}
        for number, (name, key) in enumerate(keys.items(), 1)
    }
    everything = {
        "vars": {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(folder / "key"),
            "mxcluster_state_dir": str(folder / "state"),
            "train_job_runs_dir": str(folder / "runs"),
            "mxnet_version": "1.9.1",
            "train_job_env": THREADS,
        },
        "children": {
            "scheduler": {"hosts": {"node1": {}}},
            "servers": {"hosts": {"node1": {}}},
            "workers": {"hosts": {name: {} for name in list(hosts)[0 if systemd else 1 :]}},
        },
        "hosts": hosts,
    }
    if not systemd:
        everything["vars"].update(
            ansible_user=LOGIN,
            mxcluster_user="",
            mxcluster_home="/home/%s/mxcluster" % LOGIN,
            mxcluster_etc_dir="/home/%s/mxcluster/etc" % LOGIN,
            ssh_mesh_mode="none",
        )
    (folder / "inventory").mkdir()
    # JSON is valid YAML
    (folder / "inventory" / "hosts.yml").write_text(json.dumps({"all": everything}))


def play(folder, *arguments):
    """Run ansible-playbook with the inventory in `folder`; return (seconds, output).

    Args: `arguments` the playbook and its options.
    """
    began = time.monotonic()
    output = say("ansible-playbook", "-i", folder / "inventory", *arguments)
    return time.monotonic() - began, output
