"""Fixtures for the tests of all scenarios: access to the nodes with docker, and the playbooks."""

import collections
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest
import testinfra
import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[1]
SCENARIO = pathlib.Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])
SHARED = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "shared"
INVENTORIES = (
    "--inventory",
    str(PROJECT / "molecule" / "shared" / "inventory"),
    "--inventory",
    str(SCENARIO / "inventory"),
)

# A real CentOS 7 lacks the stand-in's server and hardware, which those tests manipulate.
collect_ignore = (
    ["el7/test_driver.py", "el7/test_el7.py"] if os.environ.get("MXCLUSTER_EL7_IMAGE") else []
)

Result = collections.namedtuple("Result", "code output seconds")
Job = collections.namedtuple("Job", "result folder verdict")


class Cluster:
    """The scenario's nodes and the controller."""

    def __init__(self):
        listed = json.loads(self.command("ansible-inventory", *INVENTORIES, "--list").output)
        self.variables = listed["_meta"]["hostvars"]
        self.names = sorted(self.variables)
        self.project, self.scenario, self.shared = PROJECT, SCENARIO, SHARED
        self.runs = SHARED / "runs"
        self.state = SHARED / "state"

    def node(self, name):
        """Return the node through docker, which works regardless of its sshd and firewall."""
        return testinfra.get_host("docker://" + self.container(name))

    @staticmethod
    def container(name):
        """Return the name of the node's container."""
        return "mxcluster-%s-%s" % (SCENARIO.name, name)

    def nodes(self):
        """Return {name: node}."""
        return {name: self.node(name) for name in self.names}

    def shell(self, name, script, user="root"):
        """Run a shell script on a node; return its output, or fail on a non-zero status."""
        result = self.node(name).run("runuser -u %s -- sh -c %s", user, script)
        assert result.rc == 0, "%s: %s\n%s%s" % (name, script, result.stdout, result.stderr)
        return result.stdout.strip()

    def command(self, *argv, timeout=300):
        """Run a program from the repository's root, as a user does."""
        began = time.time()
        done = subprocess.run(
            [str(word) for word in argv],
            cwd=PROJECT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
        )
        return Result(done.returncode, done.stdout.decode(errors="replace"), time.time() - began)

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
        left, deadline = self.temporary() - before, time.time() + 10
        while left and time.time() < deadline:  # other running playbooks remove theirs soon
            left &= self.temporary()
        assert not left, "leftover temporary files: %s\n%s" % (sorted(left), result.output)
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
        """Start a playbook of the project in its own process group."""
        return subprocess.Popen(
            self.playbook(playbook, *arguments, **options),
            cwd=PROJECT,
            start_new_session=True,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
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
        hosts = yaml.safe_load((SCENARIO / "inventory" / "hosts.yml").read_text())
        change(hosts["all"])
        shutil.copytree(str(SCENARIO / "inventory"), str(folder))
        (folder / "hosts.yml").write_text(yaml.safe_dump(hosts, sort_keys=False))
        return folder

    return write


@pytest.fixture(scope="session")
def cluster():
    """Return the scenario's cluster."""
    return Cluster()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the nodes' journals and the logs of jobs to the report of a failed test."""
    report = (yield).get_result()
    if report.when == "call" and report.failed:
        for name in Cluster().names:
            journal = subprocess.run(
                ["docker", "exec", Cluster.container(name), "journalctl", "--no-pager", "-n", "40"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            report.sections.append(("journal of " + name, journal.stdout.decode(errors="replace")))
        for log in sorted(SHARED.glob("runs/*/*.log"))[-12:]:
            report.sections.append(
                (str(log.relative_to(SHARED)), log.read_text(errors="replace")[-3000:])
            )
