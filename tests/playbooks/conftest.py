"""A copy of the project, in which the playbooks are run as a user runs them."""

import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
Result = collections.namedtuple("Result", "code output seconds")


def hear_interrupts():
    """As programs do that a terminal starts; what runs in the background may have inherited that Ctrl-C means nothing to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Project:
    """The copy: its folder, an empty home and an empty folder for temporary files."""

    def __init__(self, folder):
        self.path, self.home, self.tmp = folder / "mxcluster", folder / "home", folder / "tmp"
        for made in (self.path, self.home, self.tmp):
            made.mkdir()
        listed = subprocess.check_output(["git", "ls-files", "-coz", "--exclude-standard"], cwd=str(SOURCE)).decode()
        for name in filter(None, listed.split("\0")):
            if (SOURCE / name).is_symlink() or (SOURCE / name).exists():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(SOURCE / name), str(self.path / name), follow_symlinks=False)

    def start(self, *arguments):
        """Starts ansible-playbook in a process group of its own."""
        programs = str(pathlib.Path(sys.executable).parent)
        # Not the whole PATH: pip asks any rustc that it finds for its version, and rustup's answers by writing to the home.
        environment = {"PATH": programs + ":/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home), "TMPDIR": str(self.tmp),
                       "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        # Where pip finds packages on this machine is no business of the project's.
        environment.update({name: value for name, value in os.environ.items() if name.startswith("PIP_")})
        return subprocess.Popen(["ansible-playbook", *map(str, arguments)], cwd=str(self.path), env=environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                start_new_session=True, preexec_fn=hear_interrupts)

    def run(self, *arguments, timeout=300):
        """Runs ansible-playbook to its end: exit status, output, seconds."""
        began = time.time()
        process = self.start(*arguments)
        try:
            output = process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0] + b"\n(killed after %d s)" % timeout
        return Result(process.returncode, output.decode(errors="replace"), time.time() - began)

    def train(self, *arguments, **options):
        """Runs train.yml with the options as extra variables, and gives (Result, folder of the run)."""
        options.setdefault("job_id", "job-%d" % (len(self.jobs()) + 1))
        result = self.run("train.yml", "-e", json.dumps(options), *arguments)
        return result, self.path / "runs" / options["job_id"]

    def jobs(self):
        """The runs there are."""
        return sorted(path.name for path in (self.path / "runs").glob("*"))

    def processes(self):
        """What still runs of jobs of this copy: {pid: command line}."""
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(self.path) in command and any(
                        "mxcluster." + part in command for part in ("run", "agent", "meeting")):
                    found[int(process.name)] = command
            except OSError:  # it ended meanwhile
                continue
        return found

    def wait_for_nothing_left(self, seconds):
        """Waits until no process of a job runs; fails with what does after `seconds`."""
        deadline = time.time() + seconds
        while self.processes():
            assert time.time() < deadline, "still there after %d s: %s" % (seconds, self.processes())
            time.sleep(0.1)

    def inventory(self, name, **replacements):
        """A variant of inventory/local with texts replaced, that has its records."""
        folder = self.path / "inventory" / name
        shutil.copytree(str(self.path / "inventory" / "local"), str(folder))
        with open(str(folder / "group_vars" / "all.yml"), "a") as stream:
            stream.write("mxcluster_state_dir: %s\n" % (self.path / ".state" / "local"))
        text = (folder / "hosts.yml").read_text()
        for old, new in replacements.items():
            assert old in text, old
            text = text.replace(old, new)
        (folder / "hosts.yml").write_text(text)
        return folder


@pytest.fixture(scope="session")
def bare_project(tmp_path_factory):
    """A copy in which nothing has been done yet."""
    return Project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def project(bare_project):
    """The same copy, provisioned."""
    if not list(bare_project.path.glob(".state/local/nodes/*.json")):
        result = bare_project.run("provision.yml")
        assert result.code == 0, result.output
    return bare_project
