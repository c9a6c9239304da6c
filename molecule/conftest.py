"""Fixtures for the tests of all scenarios: access to the nodes with docker, and the playbooks."""

import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import testinfra
import yaml

from tests import costs, machine
from tests.waiting import until

PROJECT = pathlib.Path(__file__).resolve().parents[1]
SCENARIO = pathlib.Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])
# tools/molecule.sh gives each run of the machine names and addresses of its own.
NAME = "mxcluster-%s-%s" % (os.environ["MXCLUSTER_RUN"], SCENARIO.name)
NETWORK = os.environ["MXCLUSTER_RUN_NETWORK"]
FOLDER = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
SHARED = FOLDER / "shared"
INVENTORY = FOLDER / "nodes"  # the scenario's inventory with the addresses of this run
INVENTORIES = (
    "--inventory",
    str(PROJECT / "molecule" / "shared" / "inventory"),
    "--inventory",
    str(INVENTORY),
)
# The inventory of a machine that is no container (tools/acceptance.py).
OF_A_MACHINE = os.environ.get("MXCLUSTER_EL7_INVENTORY")
if OF_A_MACHINE:
    INVENTORIES = ("--inventory", OF_A_MACHINE)

# A real CentOS 7 lacks the stand-in's server and hardware, which all other tests manipulate.
collect_ignore = []
if OF_A_MACHINE or os.environ.get("MXCLUSTER_EL7_IMAGE"):
    collect_ignore = [
        str(path)
        for path in (PROJECT / "molecule" / "el7").glob("test_*.py")
        if path.name != "test_on_any_centos7.py"
    ]

Result = collections.namedtuple("Result", "code output seconds")
Job = collections.namedtuple("Job", "result folder verdict")


class Playing(subprocess.Popen):
    """A playbook that runs in its own process group.

    Its output goes to a file: a full pipe would stop the playbook, and a test that waits in vain
    can show the output so far.
    """

    def __init__(self, argv):
        self.log = SHARED / "playbooks" / ("%d.log" % time.time_ns())
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("wb") as stream:
            super().__init__(
                argv,
                cwd=PROJECT,
                start_new_session=True,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

    def output(self):
        """Return the output so far."""
        return self.log.read_text(errors="replace")

    def end(self, seconds=300):
        """Wait for the end of the playbook, and return its output."""
        until(lambda: self.poll() is not None, seconds, self.output)
        return self.output()

    def kill(self):
        """Kill all processes of the playbook, unless it has ended."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


class Cluster:
    """The scenario's nodes and the controller."""

    def __init__(self):
        listed = json.loads(self.command("ansible-inventory", *INVENTORIES, "--list").output)
        self.variables = listed["_meta"]["hostvars"]
        self.names = sorted(self.variables)
        self.project, self.scenario, self.shared = PROJECT, SCENARIO, SHARED
        self.inventories = INVENTORIES
        self.runs, self.state, self.network = SHARED / "runs", SHARED / NAME, NAME

    def node(self, name):
        """Return the node through docker, which works regardless of its sshd and firewall.

        A node that is no container is reached as Ansible reaches it.
        """
        if OF_A_MACHINE:
            where = {"ansible_inventory": OF_A_MACHINE, "force_ansible": True}
            return testinfra.get_host("ansible://" + name, **where)
        return testinfra.get_host("docker://" + self.container(name))

    @staticmethod
    def container(name):
        """Return the name of the node's container."""
        return "%s-%s" % (NAME, name)

    @staticmethod
    def here(text):
        """Return a text of a test with the addresses of this run. Tests have those of run 0."""
        return text.replace("172.29.", NETWORK + ".")

    def power_on(self, name):
        """Start the stopped container of a node, and wait for its sshd.

        The wait uses no `docker exec`, which adds a process to control groups that systemd is still
        creating.
        """
        subprocess.run(["docker", "start", self.container(name)], check=True)
        address = (self.variables[name]["ansible_host"], 22)

        def answers():
            with contextlib.suppress(OSError), socket.create_connection(address, 1) as connection:
                return connection.recv(4) == b"SSH-"

        until(answers, 180, lambda: output_of("docker", "logs", self.container(name)))

    def processes(self, names=None):
        """Return the processes of the training user on nodes, by default on all, as text."""
        listed = [self.node(name).run("pgrep -u mxcluster -a") for name in names or self.names]
        return "".join(done.stdout for done in listed if done.rc == 0)

    def nodes(self):
        """Return {name: node}."""
        return {name: self.node(name) for name in self.names}

    def shell(self, name, script, user="root"):
        """Run a shell script on a node; return its output, or fail on a non-zero status."""
        result = self.node(name).run("runuser -u %s -- sh -c %s", user, script)
        assert result.rc == 0, "%s: %s\n%s%s" % (name, script, result.stdout, result.stderr)
        return result.stdout.strip()

    def command(self, *argv):
        """Run a program from the repository's root, as a user does."""
        began = time.time()
        ran = Playing([str(word) for word in argv])
        try:
            output = ran.end(900)
        finally:
            ran.kill()
        return Result(ran.returncode, output, time.time() - began)

    def playbook(self, playbook, *arguments, inventory=None, **options):
        """Return the command for a playbook on the scenario's inventory or on another folder."""
        inventories = (
            INVENTORIES if inventory is None else (*INVENTORIES[:2], "--inventory", str(inventory))
        )
        return ["ansible-playbook", *inventories, playbook, "-e", json.dumps(options), *arguments]

    def play(self, playbook, *arguments, inventory=None, **options):
        """Run a playbook of the project to its end; fail if it leaves temporary files on a node."""
        before = self.temporary()
        result = self.command(*self.playbook(playbook, *arguments, inventory=inventory, **options))
        left = self.temporary() - before

        def are_gone():  # other running playbooks remove theirs soon
            left.intersection_update(self.temporary() if left else ())
            return not left

        until(are_gone, 60, lambda: "leftover files: %s\n%s" % (sorted(left), result.output))
        return result

    def temporary(self):
        """Return {(node, file)} of Ansible's temporary files in /tmp; a stopped node has none."""
        with concurrent.futures.ThreadPoolExecutor(len(self.names)) as pool:
            listed = pool.map(lambda name: self.node(name).run("ls -d /tmp/ansible*"), self.names)
            return {
                (name, file)
                for name, done in zip(self.names, listed)
                for file in done.stdout.split()
            }

    def start(self, playbook, *arguments, **options):
        """Start a playbook of the project."""
        return Playing(self.playbook(playbook, *arguments, **options))

    def until_it_trains(self, job, playing=None):
        """Wait until the workers of all nodes have trained a batch.

        Args: `playing` is the playbook that waits for the job, None for a detached job.
        """
        events = "/opt/mxcluster/jobs/%s/events.jsonl" % job

        def trains():
            texts = [self.node(name).run("cat %s", events).stdout for name in self.names]
            assert playing is None or playing.poll() is None, (
                "the job has ended before its first batch\n" + playing.output()
            )
            return all('"batch"' in text for text in texts)

        until(trains, 300, playing.output if playing else "", pause=0.2)

    @staticmethod
    def launch(folder, *words):
        """Run `mxcluster launch` with the scenario's inventory in a folder; return its end."""
        return subprocess.run(
            [sys.executable, "-m", "mxcluster.cli", "launch", *INVENTORIES, *words],
            cwd=str(folder),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=900,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def train(self, *arguments, **options):
        """Run train.yml; return its output, the run folder, and the verdict ({} without one)."""
        options.setdefault("job_id", "job-%d" % time.time_ns())
        result = self.play("train.yml", *arguments, **options)
        folder = self.runs / options["job_id"]
        verdict = (
            json.loads((folder / "verdict.json").read_text())
            if (folder / "verdict.json").exists()
            else {}
        )
        return Job(result, folder, verdict)


def output_of(*argv):
    """Return the output of a program, for the report of a failed test."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout.decode(errors="replace")


def environment():
    """Return a user's environment, without molecule's settings for Ansible.

    SSH control sockets are in a separate folder.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    return dict(own, ANSIBLE_SSH_CONTROL_PATH_DIR=str(SHARED / "cp"))


@pytest.fixture
def inventory(tmp_path):
    """Write variants of the scenario's inventory, each changed by `change`, to new folders."""

    def write(change):
        folder = tmp_path / ("inventory-%d" % len(list(tmp_path.glob("inventory-*"))))
        hosts = yaml.safe_load((INVENTORY / "hosts.yml").read_text())
        change(hosts["all"])
        shutil.copytree(str(INVENTORY), str(folder))
        text = yaml.safe_dump(hosts, sort_keys=False)
        (folder / "hosts.yml").write_text(Cluster.here(text))
        return folder

    return write


@pytest.fixture(scope="session")
def cluster():
    """Return the scenario's cluster."""
    return Cluster()


def pytest_configure(config):
    """Measure what each test costs."""
    config.pluginmanager.register(costs)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the state of the machine, journals and logs to the report of a failed test."""
    report = (yield).get_result()
    if report.failed and not OF_A_MACHINE:
        mine = output_of(
            *"docker ps --all --format {{.Names}} --filter".split(), "name=^%s-" % NAME
        )
        report.sections += [
            ("machine", machine.described()),
            ("containers", output_of("docker", "ps", "--all")),
            ("engine", output_of("tail", "-n", "30", "/var/log/mxcluster-dockerd.log")),
        ]
        for container in sorted(mine.split()):
            journal = output_of("docker", "exec", container, *"journalctl --no-pager -n 40".split())
            report.sections.append(("journal of " + container, journal))
        logs = [*sorted(SHARED.glob("runs/*/*.log"))[-12:], *sorted(SHARED.glob("server/*.log"))]
        for log in logs:
            report.sections.append(
                (str(log.relative_to(SHARED)), log.read_text(errors="replace")[-3000:])
            )
