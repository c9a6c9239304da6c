"""Jobs whose processes are containers of this machine's docker, with the local inventory."""

import json
import os
import re
import subprocess
import time

import pytest

from mxcluster import schemes
from tests.playbooks.conftest import NET, SOURCE, Project
from tests.playbooks.faults import FAULTS, suffer

BASE = os.environ["MXCLUSTER_NODE_IMAGE"]  # Debian's Python, and the libraries of MXNet's wheels
IMAGE = "localhost/mxcluster-test"
BROUGHT = IMAGE + ":brought"
ENGINE = {"container_image_engine": "docker", "container_image_name": IMAGE}
KVS = [scheme.name for scheme in schemes.distributed()]
QUICK = ("dist_gsync", "dist_ssync")  # those with servers of mxcluster; the soak runs all
STRUCK = ("worker killed", "agent killed")
PROGRAM = SOURCE / "tests" / "playbooks" / "scripts" / "mpi_sum.py"
LIBRARIES = {"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}


def seldom(names, quick):
    """Return `names` as parameters of a test; all but those of `quick` run in the soak only."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.soak) for name in names]


# Not run to its end yet (docs/not-run.md), so `make test` leaves it out.
pytestmark = pytest.mark.soak


def docker(*words):
    return subprocess.check_output(["docker", *words]).decode().strip()


def identity(image):
    """Return the id of an image, "" if the engine does not have it."""
    return docker("images", "--quiet", "--no-trunc", image)


def containers():
    """Return the ids of all containers of jobs, also of those that have ended."""
    return set(docker("ps", "--all", "--quiet", "--filter", "label=mxcluster.job_dir").split())


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Yield a provisioned copy, whose engine has the image; `built` is the result."""
    made = Project(tmp_path_factory.mktemp("project"))
    subprocess.call(["docker", "rmi", "--force", IMAGE, BROUGHT])
    given = json.dumps(dict(ENGINE, container_image_base=BASE))
    made.built = made.run("provision.yml", "-e", given, timeout=900)
    assert made.built.code == 0, made.built.output
    yield made
    subprocess.call(["docker", "rmi", "--force", IMAGE, BROUGHT])


@pytest.fixture(scope="module")
def mpi_image():
    """Return an image with Open MPI and MPICH, which has neither mxcluster nor MXNet."""
    given = {name: text for name, text in os.environ.items() if name != "MXCLUSTER_NODE_IMAGE"}
    made = subprocess.check_output([str(SOURCE / "tools" / "node-image.sh"), "mpi"], env=given)
    return made.decode().split()[-1]


@pytest.fixture(autouse=True)
def no_container_is_left():
    before = containers()
    yield
    deadline = time.time() + 20  # the engine removes an ended container soon
    while not containers() <= before:
        assert time.time() < deadline, docker("ps", "--all")
        time.sleep(0.2)


def train(project, **options):
    """Run train.yml on the project, with processes in containers."""
    return project.train(runtime="docker", image=IMAGE, **options)


def run_mpi(project, **options):
    """Run mpi.yml with containers; return (Result, run folder, verdict or {})."""
    options = dict({"runtime": "docker", "job_id": "mpi-%d" % time.time_ns()}, **options)
    result = project.run("mpi.yml", "-e", json.dumps(options))
    folder = project.path / "runs" / options["job_id"]
    path = folder / "verdict.json"
    return result, folder, json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.parametrize("kv", seldom(KVS, QUICK))
def test_every_scheme_trains_the_digits(project, kv):
    result, run = train(project, kv=kv, job_id=kv)
    assert result.code == 0, result.output
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["ok"] and verdict["accuracy"] >= 0.95, verdict


@pytest.mark.parametrize("name", seldom(FAULTS, STRUCK))
def test_a_fault_ends_all_containers(project, name):
    fault = FAULTS[name]
    contained = dict(fault.options, runtime="docker", image=IMAGE)
    kv = "dist_gsync" if "dist_gsync" in fault.kvs else fault.kvs[0]
    suffer(
        project,
        name,
        kv,
        "fault-%s" % name.replace(" ", "-"),
        {name: fault._replace(options=contained)},
    )


def test_a_detached_job_is_shown_and_stopped(project):
    result, _ = train(project, kv="dist_sync", job_id="detached", detach=True, num_epochs=2000)
    assert result.code == 0, result.output
    deadline = time.time() + 60
    while len(containers()) < 7:  # the scheduler, two servers, four workers
        assert time.time() < deadline, docker("ps", "--all")
        time.sleep(0.2)
    assert "running" in project.run("status.yml").output
    stopped = project.run("stop.yml", "-e", "job=detached")
    assert stopped.code == 0 and "nothing: no process" in stopped.output, stopped.output


def test_an_image_that_is_there_is_neither_built_nor_copied(project):
    before = identity(IMAGE)
    again = project.run("provision.yml", "-e", json.dumps(dict(ENGINE, container_image_base=BASE)))
    assert again.code == 0, again.output
    assert set(re.findall(r"changed=(\d+)", again.output)) == {"0"}, again.output
    assert identity(IMAGE) == before


def test_a_node_that_lacks_the_image_gets_that_of_another_node(project):
    """One engine serves all nodes, so the image has another name on one of them."""
    other = project.inventory(
        "one_lacks", **{NET + ".14": "%s.14\n          container_image_name: %s" % (NET, BROUGHT)}
    )
    with open(str(other / "group_vars" / "all.yml"), "a") as stream:
        stream.write("container_image_engine: docker\ncontainer_image_name: %s\n" % IMAGE)
    dry = project.run("provision.yml", "-i", other, "--check")
    assert dry.code == 0 and not identity(BROUGHT), dry.output
    assert "to be copied to node4" in " ".join(dry.output.split()), dry.output
    result = project.run("provision.yml", "-i", other)
    assert result.code == 0 and identity(BROUGHT) == identity(IMAGE), result.output
    left = list((project.path / ".state").rglob("image.tar"))
    again = project.run("provision.yml", "-i", other)
    assert set(re.findall(r"changed=(\d+)", again.output)) == {"0"} and not left, again.output


def test_an_archive_brings_the_image_to_a_node_that_lacks_it(project, tmp_path):
    archive, other = tmp_path / "image.tar", IMAGE + ":archive"
    docker("save", "--output", str(archive), IMAGE)
    brought = dict(ENGINE, container_image_name=other, container_image_archive=str(archive))
    try:
        dry = project.run("provision.yml", "--check", "-e", json.dumps(brought))
        assert dry.code == 0 and not identity(other), dry.output
        result = project.run("provision.yml", "-e", json.dumps(brought))
        assert result.code == 0 and identity(other) == identity(IMAGE), result.output
        again = project.run("provision.yml", "-e", json.dumps(brought))
        assert set(re.findall(r"changed=(\d+)", again.output)) == {"0"}, again.output
    finally:
        subprocess.call(["docker", "rmi", other])


def test_an_image_that_no_node_has_is_refused(project):
    absent = dict(ENGINE, container_image_name="localhost/nobody")
    result = project.run("provision.yml", "-e", json.dumps(absent))
    assert result.code and "no node has the image localhost/nobody" in " ".join(
        result.output.split()
    )


@pytest.mark.parametrize(
    "engine,nodes,processes", [("mpich", 4, 1), ("openmpi", 1, 2)], ids=("mpich", "openmpi")
)
def test_an_mpi_program_runs_in_its_image(project, mpi_image, engine, nodes, processes):
    result, folder, verdict = run_mpi(
        project,
        mpi_image=mpi_image,
        mpi_command="df --output=size --block-size=M /dev/shm | tail -n 1 > shm; "
        "exec python3 mpi_sum.py " + LIBRARIES[engine],
        mpi_runtime=engine,
        mpi_num_instances=nodes,
        mpi_processes_per_node=processes,
        mpi_shm_size=96,
        # Debian's MPICH 4.0 hangs with all transports of UCX, without containers too.
        mpi_infiniband=False if engine == "mpich" else "auto",
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
        told = (files / ("rank-%d.txt" % rank)).read_text()
        expected = (rank, total, node + 1, total * (total + 1) // 2)
        assert told == "rank %d of %d on node%d: sum %d\n" % expected
        assert (files / "who").read_text().strip() == str(os.geteuid())
        assert (files / "shm").read_text().strip() == "96M"


def test_a_killed_process_of_an_mpi_program_ends_all_containers(project, mpi_image):
    result, _, verdict = run_mpi(
        project,
        mpi_image=mpi_image,
        mpi_command='[ "$MXCLUSTER_HOST" != node2 ] || kill -9 $$; sleep 600',
        mpi_runtime="mpich",
        mpi_infiniband=False,
        mpi_num_instances=2,
    )
    assert result.code and verdict["first_failure"]["name"] == "mpirun", result.output


@pytest.mark.parametrize(
    "options,words",
    [
        ({"image": "localhost/nobody"}, "bring it with provision.yml"),
        ({"image": BASE}, "has no MXNet"),
        ({"image_python": "python2.7"}, "name another Python with -e image_python"),
        ({"runtime": "podmann"}, "did you mean 'podman'"),
    ],
)
def test_bad_input_is_refused_with_its_cure(project, options, words):
    result, run = project.train(
        **dict({"runtime": "docker", "image": IMAGE, "job_id": "refused"}, **options)
    )
    assert result.code != 0 and not run.exists(), result.output
    told = " ".join(result.output.split())
    assert words in told and ("runtime" in options or "node3" in told), result.output


@pytest.mark.parametrize(
    "options,words",
    [
        ({"mpi_image": BASE}, "MPICH is not installed in the image " + BASE),
        ({"mpi_image": "localhost/nobody"}, "the image localhost/nobody is not on this node"),
        ({"mpi_image": BASE, "runtime": "host"}, "needs a container engine: add -e runtime=docker"),
    ],
)
def test_bad_input_of_an_mpi_program_is_refused_with_its_cure(project, options, words):
    result, folder, _ = run_mpi(
        project, **dict({"mpi_command": "true", "mpi_runtime": "mpich"}, **options)
    )
    assert result.code and not folder.exists(), result.output
    assert words in " ".join(result.output.split()), result.output
