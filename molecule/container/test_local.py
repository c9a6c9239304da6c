"""Jobs in containers of this machine's docker, with the local inventory.

A second docker engine stands in for the engine of another machine: its images are its own.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from mxcluster.node import processes
from tests import needs
from tests.often import seldom
from tests.playbooks.conftest import NET, SOURCE, On
from tests.playbooks.faults import FAULTS, suffer
from tests.recap import changes
from tests.waiting import until

BASE = os.environ["MXCLUSTER_NODE_IMAGE"]
RUN = os.environ["MXCLUSTER_RUN"]  # of tools/molecule.sh
IMAGE = "localhost/mxcluster-%s-test" % RUN  # of the fixture `project`
# test_nodes.py brings an archive to two nodes. Only the soak copies an image between nodes.
with_two_engines = pytest.mark.soak
ENGINE = {"container_image_engine": "docker", "container_image_name": IMAGE}


PROGRAM = SOURCE / "tests" / "playbooks" / "scripts" / "mpi_sum.py"
LIBRARIES = {"openmpi": "libmpi.so.40", "mpich": "libmpi.so.12"}
LOADED = {
    "openmpi": ":",
    "mpich": "export PATH=/opt/mpich/bin:$PATH LD_LIBRARY_PATH=/opt/mpich/lib",
}


def docker(*words, host=None):
    """Return the output of docker. `host`: the socket of another engine."""
    other = ["--host", host] if host else []
    return subprocess.check_output(["docker", *other, *words]).decode().strip()


def identity(image, host=None):
    """Return the id of an image, "" if the engine does not have it."""
    return docker("images", "--quiet", "--no-trunc", image, host=host)


def containers(project, host=None):
    """Return a line for each container of the project's jobs, also of those that have ended.

    Jobs of other runs may use the same engine.
    """
    shown = '{{.ID}} {{.Status}} {{.Label "mxcluster.job_dir"}}'
    listed = docker("ps", "--all", "--format", shown, host=host)
    return [line for line in listed.splitlines() if str(project.path) in line]


@contextlib.contextmanager
def starts(project, host=None):
    """Yield a function that returns the processes whose containers have started in the block.

    An engine keeps its last 256 events only. The engine of this machine has those of all runs.
    """
    shown = ["process", "job_dir"]
    shown = " ".join('{{index .Actor.Attributes "mxcluster.%s"}}' % name for name in shown)
    command = ["docker", *(["--host", host] if host else []), "events", "--filter", "event=start"]
    command += ["--since", "%.3f" % time.time(), "--format", shown]
    log = project.tmp / ("events-%d" % time.time_ns())
    with log.open("wb") as stream:
        listening = subprocess.Popen(command, stdout=stream)
    try:
        yield lambda: {
            line.split()[0] for line in log.read_text().splitlines() if str(project.path) in line
        }
    finally:
        listening.kill()
        listening.wait()


def changed(result):
    """Return True if the playbook has changed something."""
    return any(changes(result.output).values())


def words_of(result):
    """Return the output of a playbook without its line breaks."""
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def pair(project):
    """Return the project on its first two nodes. A job has one server and two groups."""
    return On(project, project.inventory("pair", nodes=2))


class Second:
    """A second docker engine of this machine, with images and containers of its own.

    `shell` is a shell for Ansible. Its commands find this engine instead of the first one. The
    engine has a bridge of its own: with `--bridge none` it would remove that of the first engine.
    """

    BRIDGE = "mxcluster-%s-2" % RUN
    ADDRESS = os.environ["MXCLUSTER_RUN_NETWORK"] + ".60.1/24"

    def __init__(self, folder):
        subprocess.call(["ip", "link", "delete", self.BRIDGE], stderr=subprocess.DEVNULL)
        subprocess.check_call(["ip", "link", "add", self.BRIDGE, "type", "bridge"])
        subprocess.check_call(["ip", "address", "add", self.ADDRESS, "dev", self.BRIDGE])
        self.folder, self.host, me = folder, "unix://%s/sock" % folder, os.getpid()
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [
                "dockerd",
                *("--host", self.host, "--data-root", str(folder / "data")),
                *("--exec-root", str(folder / "run"), "--pidfile", str(folder / "pid")),
                *("--bridge", self.BRIDGE, "--iptables=false", "--ip-forward=false"),
            ],
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: processes.set_pdeathsig(me, signal.SIGTERM),
        )
        self.shell = folder / "bin" / "sh"
        self.shell.parent.mkdir()
        self.shell.write_text('#!/bin/sh\nexport DOCKER_HOST=%s\nexec /bin/sh "$@"\n' % self.host)
        self.shell.chmod(0o755)

    def answers(self):
        """Return True if the engine answers."""
        assert self.process.poll() is None, self.end_of_log()
        info = ["docker", "--host", self.host, "info"]
        return subprocess.call(info, stdout=self.log, stderr=self.log) == 0

    def end_of_log(self):
        """Return the end of the engine's log."""
        return (self.folder / "log").read_text(errors="replace")[-6000:]

    def close(self):
        self.process.terminate()
        self.process.wait(180)
        self.log.close()
        network = self.folder / "run" / "netns" / "default"  # dockerd leaves this mount
        if os.path.ismount(str(network)):
            subprocess.check_call(["umount", str(network)])
        subprocess.call(["ip", "link", "delete", self.BRIDGE])


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """Yield the second engine."""
    needs.find_program("dockerd")
    folder = tmp_path_factory.mktemp("d")  # the path of a socket has at most 107 bytes
    made = Second(folder)
    try:
        until(made.answers, 180, made.end_of_log, pause=0.5)
        yield made
    finally:
        made.close()
    shutil.rmtree(str(folder), ignore_errors=True)


@pytest.fixture(scope="module")
def two_engines(project, second):
    """Return the pair of nodes. The second engine is the engine of node2."""
    at = NET + ".12"
    shell = "%s\n          ansible_shell_executable: %s" % (at, second.shell)
    return On(project, project.inventory("two_engines", nodes=2, **{at: shell}))


@pytest.fixture(autouse=True)
def no_container_is_left(project):
    yield
    until(lambda: not containers(project), evidence=lambda: containers(project), pause=0.2)


def train(project, **options):
    """Run train.yml with processes in containers; return (Result, run folder)."""
    return project.train(**dict({"runtime": "docker", "image": IMAGE}, **options))


def run_mpi(project, **options):
    """Run mpi.yml with containers; return (Result, run folder, verdict or {})."""
    options = dict({"runtime": "docker", "job_id": "mpi-%d" % time.time_ns()}, **options)
    result = project.run("mpi.yml", "-e", json.dumps(options))
    folder = project.path / "runs" / options["job_id"]
    path = folder / "verdict.json"
    return result, folder, json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.soak  # test_agent.py and test_nodes.py kill processes of containers
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_all_containers(project, name):
    fault = FAULTS[name]
    contained = dict(fault.options, runtime="docker", image=IMAGE)
    kv = "dist_gsync" if "dist_gsync" in fault.kvs else fault.kvs[0]
    job = "fault-%s" % name.replace(" ", "-")
    suffer(project, name, kv, job, {name: fault._replace(options=contained)})


def test_an_image_that_is_there_is_neither_built_nor_copied(project):
    before = identity(IMAGE)
    given = json.dumps(dict(ENGINE, container_image_base=BASE))
    again = project.run("provision.yml", "--tags", "container_image", "-e", given)
    assert again.code == 0 and not changed(again), again.output
    assert identity(IMAGE) == before


@with_two_engines
def test_a_node_without_the_image_is_refused_and_gets_it_from_another_node(two_engines, second):
    refused, run = train(two_engines, job_id="lacking")
    assert refused.code and not run.exists(), refused.output
    assert "the image %s is not on this node" % IMAGE in words_of(refused), refused.output
    assert "node2" in refused.output and not identity(IMAGE, second.host)
    dry = two_engines.run("provision.yml", "--check", "-e", json.dumps(ENGINE))
    assert dry.code == 0 and not identity(IMAGE, second.host), dry.output
    assert "is to be copied to node2" in words_of(dry), dry.output
    brought = two_engines.run("provision.yml", "-e", json.dumps(ENGINE))
    assert brought.code == 0, brought.output
    assert identity(IMAGE, second.host) == identity(IMAGE), brought.output
    state = two_engines.path / ".state"
    assert not list(state.rglob("image*.tar")) and not list(state.rglob("container_image"))


@with_two_engines
def test_a_job_runs_on_the_engines_of_two_nodes(two_engines, second):
    with starts(two_engines) as on_first, starts(two_engines, second.host) as on_second:
        result, run = train(two_engines, kv="dist_gsync", job_id="two-engines")
        left = containers(two_engines, second.host)
        assert result.code == 0, result.output + second.end_of_log()
        verdict = json.loads((run / "verdict.json").read_text())
        assert verdict["ok"] and verdict["accuracy"] >= 0.95, verdict
        for started, names in (
            (on_first, {"scheduler-0", "server-0", "worker-0"}),
            (on_second, {"worker-1"}),
        ):
            until(lambda started=started, names=names: names <= started(), evidence=started)
    assert not left, second.end_of_log()


@with_two_engines
def test_nodes_with_different_images_of_one_name_are_refused(two_engines, second):
    docker("tag", IMAGE, IMAGE + ":other")
    made = docker("create", "--network", "none", IMAGE, "true", host=second.host)
    docker("commit", "--message", "another image", made, IMAGE + ":other", host=second.host)
    docker("rm", made, host=second.host)
    try:
        result, run = train(two_engines, image=IMAGE + ":other", job_id="different")
        assert result.code and not run.exists(), result.output
        assert "The nodes have different images with the name" in words_of(result), result.output
    finally:
        docker("rmi", IMAGE + ":other")
        docker("rmi", IMAGE + ":other", host=second.host)


@pytest.mark.soak
def test_podman_gets_the_image_from_an_archive_and_trains(pair, tmp_path):
    needs.find_program("podman")
    archive = tmp_path / "image.tar"
    docker("save", "--output", str(archive), IMAGE)
    given = dict(ENGINE, container_image_engine="podman", container_image_archive=str(archive))
    arguments = ["provision.yml", "--tags", "container_image", "-e", json.dumps(given)]
    try:
        dry = pair.run(*arguments, "--check")
        assert dry.code == 0 and "is to be copied to node1, node2" in words_of(dry), dry.output
        result = pair.run(*arguments)
        assert result.code == 0, result.output
        again = pair.run(*arguments)
        assert again.code == 0 and not changed(again), again.output
        trained, run = train(pair, runtime="podman", kv="dist_gsync", job_id="podman")
        assert trained.code == 0, trained.output
        assert json.loads((run / "verdict.json").read_text())["accuracy"] >= 0.95
        left = ["podman", "ps", "--all", "--quiet", "--filter", "label=mxcluster.job_dir"]
        assert not subprocess.check_output(left)
    finally:
        subprocess.call(["podman", "rmi", "--force", IMAGE])


def test_an_image_that_no_node_has_is_refused(project):
    absent = json.dumps(dict(ENGINE, container_image_name="localhost/nobody"))
    result = project.run("provision.yml", "--tags", "container_image", "-e", absent)
    assert result.code, result.output
    assert "no node has the image localhost/nobody" in words_of(result), result.output


@pytest.mark.parametrize("engine,nodes,processes", [("mpich", 2, 2), seldom("openmpi", 1, 2)])
def test_an_mpi_program_runs_in_its_image(project, engine, nodes, processes):
    result, folder, verdict = run_mpi(
        project,
        mpi_image=BASE,
        mpi_command="df --output=size --block-size=M /dev/shm | tail -n 1 > shm; "
        "exec python3 mpi_sum.py " + LIBRARIES[engine],
        mpi_pre_execution_command=LOADED[engine],
        mpi_runtime=engine,
        mpi_num_instances=nodes,
        mpi_processes_per_node=processes,
        mpi_shm_size=96,
        mpi_env={"NUMBERS": "1000000"},  # long enough for a copy between two processes
        mpi_resource_files=[str(PROGRAM)],
        mpi_coordination_command="id -u > who",
    )
    assert result.code == 0 and verdict["ok"], result.output
    total = nodes * processes
    for rank in range(total):
        node = rank // processes
        files = folder / "nodes" / ("node%d" % (node + 1)) / "files"
        files /= "node-%d" % node if node else "mpirun"
        text = (files / ("rank-%d.txt" % rank)).read_text()
        expected = (rank, total, node + 1, total * (total + 1) // 2)
        assert text == "rank %d of %d on node%d: sum %d\n" % expected
        assert (files / "who").read_text().strip() == str(os.geteuid())
        assert (files / "shm").read_text().strip() == "96M"


def test_a_killed_process_of_an_mpi_program_ends_all_containers(project):
    result, _, verdict = run_mpi(
        project,
        mpi_image=BASE,
        mpi_command='[ "$MXCLUSTER_HOST" != node2 ] || kill -9 $$; sleep 600',
        mpi_pre_execution_command=LOADED["mpich"],
        mpi_runtime="mpich",
        mpi_num_instances=2,
    )
    assert result.code and verdict["first_failure"]["name"] == "mpirun", result.output


@pytest.mark.parametrize(
    "options,words",
    [
        ({"image": BASE}, "has no MXNet"),
        ({"image_python": "python2.7"}, "name another Python with -e image_python"),
        (
            {"runtime": "podman"},
            "is not on this node (podman: "
            if shutil.which("podman")
            else "podman is not installed on this node",
        ),
    ],
)
def test_bad_input_is_refused_with_its_cure(pair, options, words):
    result, run = train(pair, **dict({"job_id": "refused"}, **options))
    assert result.code != 0 and not run.exists(), result.output
    assert words in words_of(result), result.output
    assert "node2" in result.output, result.output


@pytest.mark.soak  # test_mpi_installation.py finds the engine
def test_an_image_without_the_mpi_engine_is_refused(pair):
    result, folder, _ = run_mpi(pair, mpi_command="true", mpi_runtime="mpich", mpi_image=BASE)
    assert result.code and not folder.exists(), result.output
    assert "MPICH is not installed in the image " + BASE in words_of(result), result.output
