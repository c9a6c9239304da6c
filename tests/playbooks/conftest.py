"""A copy of the project, in which tests run the playbooks as a user does."""

import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from mxcluster.node import processes
from tests import networks
from tests.training.environments import NEWEST, copy_environment
from tests.waiting import until

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HOSTS = {
    "all": {
        "children": {
            "scheduler": {"hosts": {"one": {}}},
            "servers": {"hosts": {"one": {}}},
            "workers": {"hosts": {"one": {}, "two": {}}},
        },
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
    }
}
# Concurrent test processes use separate addresses; otherwise their nodes would compete for ports.
NET = networks.own_network()
# The modules of the package that a job's processes run.
OF_JOBS = ("agent", "training", "node.rendezvous", "node.mpi_job", "entry --serve")
# Seconds for the end of a playbook: many times what the longest needs on a quiet machine, and less
# than stall_timeout. So a job that only its stall_timeout would end is not ended in time.
PATIENCE = 240
# The servers' part of inventory/local/hosts.yml.
SERVERS = "    servers:\n      hosts:\n        node1:\n"
Result = collections.namedtuple("Result", "code output")


def hear_signals():
    """Restore the default signal actions, as in a program started from a terminal.

    A background process may have inherited ignored signals. The kernel kills the program if the
    test process is killed: the lease then ends the jobs, and they hold no port of a later run.
    """
    processes.set_pdeathsig(os.getppid())
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(signum, signal.SIG_DFL)


def refuse_warnings(output):
    """Fail on a warning of a playbook: each warning has a cause in the project."""
    found = [
        line
        for line in output.splitlines()
        if "[WARNING]" in line or "[DEPRECATION WARNING]" in line
    ]
    assert not found, output


def end(process):
    """Kill an ansible-playbook with its forks, if they still run, and return its unread output."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout.closed:  # a caller has read it
        return ""
    return process.communicate()[0].decode(errors="replace")


@contextlib.contextmanager
def small_disk(folder, size="128m"):
    """Mount a file system of `size` on `folder`, as root, for a test that fills the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=" + size, "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder):
    """Fill the file system of `folder`."""
    with contextlib.suppress(OSError), open(
        str(folder / "everything"), "wb", buffering=0
    ) as stream:
        while stream.write(bytes(1 << 16)):
            pass


class Project:
    """The copy, with an empty home and an empty folder for temporary files.

    Args: `programs` is the folder of ansible-playbook, by default that of the tests' own Python;
    `commit` names an older version of the project, by default its present files are copied.
    """

    def __init__(self, folder, programs=pathlib.Path(sys.executable).parent, commit=None):
        self.programs, self.environment = programs, {}
        self.path, self.home, self.tmp = folder / "mxcluster", folder / "home", folder / "tmp"
        for made in (self.path, self.home, self.tmp):
            made.mkdir()
        if commit:
            packed = subprocess.check_output(["git", "archive", commit], cwd=str(SOURCE))
            subprocess.run(["tar", "x"], input=packed, cwd=str(self.path), check=True)
        else:
            self.copy_files()
        self.use_own_addresses()

    def copy_files(self):
        """Copy the files of the project that git knows or would add."""
        listed = subprocess.check_output(
            ["git", "ls-files", "-coz", "--exclude-standard"], cwd=str(SOURCE)
        ).decode()
        for name in filter(None, listed.split("\0")):
            if (SOURCE / name).is_symlink() or (SOURCE / name).exists():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(SOURCE / name), str(self.path / name), follow_symlinks=False)

    def use_own_addresses(self):
        """Give the nodes of inventory/local the loopback addresses of this test process."""
        hosts = self.path / "inventory" / "local" / "hosts.yml"
        hosts.write_text(hosts.read_text().replace("127.0.0", NET))

    def start(self, *arguments):
        """Start ansible-playbook in its own process group."""
        # PATH is restricted: pip asks any rustc that it finds for its version, and rustup writes to
        # the home.
        environment = {
            "PATH": "%s:/usr/local/bin:/usr/bin:/bin" % self.programs,
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            "LC_ALL": "C.UTF-8",
            **self.environment,
        }
        # pip's package index is a setting of this machine. tests/startup reads pytest's variable.
        inherited = ("PIP_", "PYTEST_CURRENT_TEST")
        environment.update(
            {name: value for name, value in os.environ.items() if name.startswith(inherited)}
        )
        return subprocess.Popen(
            ["ansible-playbook", *map(str, arguments)],
            cwd=str(self.path),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=hear_signals,
        )

    def run(self, *arguments, timeout=300):
        """Run ansible-playbook to its end; return exit status and output."""
        before = self.temporary()
        process = self.start(*arguments)
        output = self.finish(process, timeout)
        refuse_warnings(output)
        left = self.temporary() - before
        # Another playbook that is still running removes its files soon.
        until(
            lambda: not left & self.temporary(),
            evidence=lambda: "leftover temporary files: %s\n%s" % (sorted(left), output),
        )
        return Result(process.returncode, output)

    def finish(self, process, timeout=PATIENCE):
        """Return the output of a started ansible-playbook after its end; fail after `timeout`."""
        try:
            return process.communicate(timeout=timeout)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            raise AssertionError("killed after %d s\n%s" % (timeout, end(process))) from None

    def until(self, process, condition, seconds=PATIENCE):
        """Wait for `condition()` while a started ansible-playbook runs, and return its value.

        If the playbook ends before, or after `seconds`, fail with its output.
        """

        def come():
            value = condition()
            assert value or process.poll() is None, "the playbook ended before\n" + end(process)
            return value

        return until(come, seconds, lambda: end(process))

    def temporary(self):
        """Return the temporary files, including those of modules and of Ansible's wrapper."""
        return set(map(str, self.tmp.iterdir()))

    def train(self, *arguments, **options):
        """Run train.yml with the options as extra variables; return (Result, run folder)."""
        options.setdefault("job_id", "job-%d" % (len(self.jobs()) + 1))
        result = self.run("train.yml", "-e", json.dumps(options), *arguments)
        return result, self.path / "runs" / options["job_id"]

    def ansible_log(self):
        """Return the text of the latest log with Ansible's output, without its times.

        The log is that of the last playbook that has ended, if no other one runs.
        """
        found = [*self.path.glob("runs/*/ansible.log"), *self.path.glob(".state/*/*-*-*.log")]
        latest = max(found, key=lambda path: path.stat().st_mtime)
        assert latest.stat().st_mode & 0o777 == 0o600, latest
        return re.sub(r"^[-0-9]{10} [:0-9]{8},\d{3} ", "", latest.read_text(), flags=re.MULTILINE)

    def jobs(self):
        """Return the names of the run folders."""
        return sorted(path.name for path in (self.path / "runs").glob("*") if path.is_dir())

    def processes(self, answering=False):
        """Return {pid: command line} of this copy's jobs.

        With `answering`, return the programs that answer a controller instead.
        """
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                command = (
                    (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                if str(self.path) in command and any(
                    " -m mxcluster." + part in command
                    for part in (("entry",) if answering else OF_JOBS)
                ):
                    found[int(process.name)] = command
            except OSError:  # the process has ended
                continue
        return found

    def folders(self, job="*"):
        """Return the folders of jobs on their nodes. A batch job's first node has those of all."""
        jobs = self.path / ".state" / "local" / "jobs"
        return [*jobs.glob("*/" + job), *jobs.glob("*/*/nodes/*/" + job)]

    def status(self, job, host):
        """Return the status of a job on a node. The agent replaces the file as a whole."""
        path = self.path / ".state" / "local" / "jobs" / host / job / "status.json"
        return json.loads(path.read_text())

    def wait_for_nothing_left(self, leased=False):
        """Wait until no process of a job runs.

        A process that is left runs until the lease of its job ends, or for ever. So no job may end
        by its lease meanwhile, unless the job is `leased`: its controller is gone.
        """
        began = time.time()
        until(lambda: not self.processes(), 120, self.processes)
        if not leased:
            for path in [folder / "status.json" for folder in self.folders()]:
                status = json.loads(path.read_text()) if path.exists() else {}
                assert status.get("reason") != "lease" or status["ended"] < began, status

    def outlast(self, job, seconds):
        """Wait until the lease of a job is `seconds` old, and its agents have looked since.

        An agent looks twice a second and sleeps between, and the kernel counts the sleeps.
        """
        leases = [folder / "lease" for folder in self.folders(job)]
        statuses = [lease.with_name("status.json") for lease in leases]
        agents = [json.loads(path.read_text())["agent"]["pid"] for path in statuses]

        def sleeps(agent):
            try:
                text = pathlib.Path("/proc/%d/status" % agent).read_text()
            except OSError:  # an agent that has ended is found by the test
                return float("inf")
            return int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])

        def old():
            return all(
                not lease.exists() or time.time() - lease.stat().st_mtime > seconds
                for lease in leases
            )

        assert leases, self.folders()
        until(old, seconds + 60)
        before = [sleeps(agent) for agent in agents]
        until(lambda: all(sleeps(agent) > count + 3 for agent, count in zip(agents, before)))

    def logs(self, since=0.0):
        """Return the ends of the jobs' logs that have changed after `since`, as one text."""
        found = [*self.path.glob("runs/*/nodes/*/*.log")]
        found += [path for folder in self.folders() for path in folder.glob("*.log")]
        return "\n".join(
            "--- %s\n%s" % (path, path.read_text(errors="replace")[-2000:])
            for path in sorted(found)
            if path.stat().st_mtime >= since
        )

    def inventory(self, name, nodes=4, **replacements):
        """Write a variant of inventory/local with replaced texts and the same records.

        With fewer than four `nodes` only node1 has a server, and the last node is alone in a group.
        """
        folder = self._variant(name, nodes)
        with open(str(folder / "group_vars" / "all.yml"), "a") as stream:
            stream.write("mxcluster_state_dir: %s\n" % (self.path / ".state" / "local"))
        if nodes < 4:
            replacements = {SERVERS + "        node2:\n": SERVERS, **replacements}
        if nodes == 2:  # node3 has its own group already
            group = "12\n          worker_group: "
            replacements = {group + "first pair": group + "second pair", **replacements}
        text = (folder / "hosts.yml").read_text()
        for old, new in replacements.items():
            assert old in text, old
            text = text.replace(old, new)
        (folder / "hosts.yml").write_text(text)
        return folder

    def small_inventory(self, name="small"):
        """Write inventory/<name>: the first two nodes of inventory/local, with a new state folder.

        Each node takes seconds.
        """
        return self._variant(name, nodes=2)

    def _variant(self, name, nodes):
        """Copy inventory/local with its first `nodes` nodes, and return the new folder."""
        folder = self.path / "inventory" / name
        shutil.copytree(str(self.path / "inventory" / "local"), str(folder))
        text = (folder / "hosts.yml").read_text()
        (folder / "hosts.yml").write_text(
            text.split("        node%d:\n          " % (nodes + 1))[0]
        )
        return folder

    def files(self):
        """Return the paths in the copy, without the state folder and bytecode."""
        return {
            str(path.relative_to(self.path))
            for path in self.path.rglob("*")
            if ".state" not in path.parts and "__pycache__" not in path.parts
        }

    def elsewhere(self):
        """Return the paths in the home and in the folder for temporary files."""
        return {str(path) for folder in (self.home, self.tmp) for path in folder.rglob("*")}


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """Return a provisioned copy, whose environment with MXNet is a copy of that of other tests.

    `first` is the result of its provision.yml; `written` are the new files outside .state.
    """
    made = Project(tmp_path_factory.mktemp("project"))
    copy_environment(NEWEST, made.path / ".state" / "local" / "env")
    before = made.files()
    made.first = made.run("provision.yml")
    assert made.first.code == 0, made.first.output
    made.written = made.files() - before | made.elsewhere()
    return made


class On:
    """A project whose playbooks get another inventory, a folder, as their argument."""

    def __init__(self, project, inventory):
        self.project, self.where = project, ("-i", str(inventory))

    def __getattr__(self, name):
        return getattr(self.project, name)

    def start(self, playbook, *arguments):
        return self.project.start(playbook, *self.where, *arguments)

    def run(self, playbook, *arguments, **options):
        return self.project.run(playbook, *self.where, *arguments, **options)

    def train(self, *arguments, **options):
        return self.project.train(*self.where, *arguments, **options)


@pytest.fixture(scope="session")
def pair(project):
    """Return the project on two of its nodes: a server, and two workers in two groups.

    A job takes two thirds of the time of a job on all four nodes.
    """
    return On(project, project.inventory("pair", nodes=2))


@pytest.fixture
def play(tmp_path):
    """Run tasks on the host one; return {task name: result}, and the error message as "refused".

    Both hosts are this machine. Tasks that run on hosts="all" must not share a path of a node: one
    host's task would find what the other's has just made or removed.
    """
    (tmp_path / "playbooks").mkdir()
    (tmp_path / ".state").mkdir()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(HOSTS))

    def run(tasks, *arguments, hosts="one", **variables):
        book = tmp_path / "playbooks" / "play.yml"
        book.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
        done = subprocess.run(
            [
                os.path.join(os.path.dirname(sys.executable), "ansible-playbook"),
                "-i",
                str(tmp_path / "hosts.yml"),
                "-e",
                json.dumps(variables),
                "--limit",
                hosts,
                str(book),
                *arguments,
            ],
            cwd=str(SOURCE),
            stdout=subprocess.PIPE,
            timeout=PATIENCE,
            env=dict(
                os.environ,
                LC_ALL="C.UTF-8",
                TMPDIR=str(tmp_path / "tmp"),
                ANSIBLE_STDOUT_CALLBACK="ansible.builtin.json",
            ),
        )
        assert os.listdir(str(tmp_path / "tmp")) == [], "leftover temporary files"
        assert b"{" in done.stdout, "exit status %d, see stderr" % done.returncode
        answer = json.loads(done.stdout.decode()[done.stdout.decode().index("{") :])
        results = {
            task["task"]["name"]: task["hosts"]["one"]
            for ran in answer["plays"]
            for task in ran["tasks"]
            if "one" in task["hosts"]
        }
        refused = [result for result in results.values() if result.get("failed")]
        if (done.returncode != 0) != bool(refused):
            pytest.fail("exit status %d\n%s" % (done.returncode, done.stdout.decode()))
        return dict(results, refused=refused[0]["msg"] if refused else "")

    return run


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the ends of the jobs' logs to the report of a failed test."""
    report = (yield).get_result()
    if report.failed:
        for made in item.funcargs.values():
            if isinstance(made, Project):
                with contextlib.suppress(OSError):  # a job that still runs may remove a file
                    report.sections.append(("logs of the jobs", made.logs(since=call.start)))


def role(name, file="main.yml"):
    return [{"ansible.builtin.import_role": {"name": name, "tasks_from": file}}]
