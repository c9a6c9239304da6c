"""Jobs whose processes are containers of this machine's docker, with the local inventory."""

import json
import os
import re
import subprocess

import pytest

from mxcluster import schemes
from tests.playbooks.conftest import Project
from tests.playbooks.faults import FAULTS, suffer

BASE = os.environ["MXCLUSTER_NODE_IMAGE"]  # Debian's Python, and the libraries of MXNet's wheels
IMAGE = "localhost/mxcluster-test"
ENGINE = {"container_image_engine": "docker", "container_image_name": IMAGE}
KVS = [scheme.name for scheme in schemes.distributed()]
QUICK = ("dist_gsync", "dist_ssync")  # those with servers of mxcluster; the soak runs all
STRUCK = ("worker killed", "agent killed")


def seldom(names, quick):
    """Return `names` as parameters of a test; all but those of `quick` run in the soak only."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.soak) for name in names]


# Not run to its end yet (docs/not-run.md), so `make test` leaves it out.
pytestmark = pytest.mark.soak


def docker(*words):
    return subprocess.check_output(["docker", *words]).decode().strip()


def containers():
    """Return the ids of all containers of jobs, also of those that have ended."""
    return docker("ps", "--all", "--quiet", "--filter", "label=mxcluster.job_dir").split()


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a provisioned copy, whose engine has the image."""
    made = Project(tmp_path_factory.mktemp("project"))
    built = made.run("provision.yml", "-e", json.dumps(dict(ENGINE, container_image_base=BASE)))
    assert built.code == 0, built.output
    return made


@pytest.fixture(autouse=True)
def no_container_is_left():
    before = set(containers())
    yield
    assert set(containers()) <= before


def train(project, **options):
    """Run train.yml on the project, with processes in containers."""
    return project.train(runtime="docker", image=IMAGE, **options)


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


def test_an_image_that_is_there_is_neither_built_nor_copied(project):
    before = docker("image", "inspect", "--format", "{{.Id}}", IMAGE)
    again = project.run("provision.yml", "-e", json.dumps(dict(ENGINE, container_image_base=BASE)))
    assert again.code == 0, again.output
    assert set(re.findall(r"changed=(\d+)", again.output)) == {"0"}, again.output
    assert docker("image", "inspect", "--format", "{{.Id}}", IMAGE) == before


@pytest.mark.soak
def test_an_archive_brings_the_image_to_a_node_that_lacks_it(project, tmp_path):
    archive, other = tmp_path / "image.tar", IMAGE + ":carried"
    docker("save", "--output", str(archive), IMAGE)
    brought = dict(ENGINE, container_image_name=other, container_image_archive=str(archive))
    try:
        dry = project.run("provision.yml", "--check", "-e", json.dumps(brought))
        assert dry.code == 0 and not docker("images", "--quiet", other), dry.output
        result = project.run("provision.yml", "-e", json.dumps(brought))
        assert result.code == 0, result.output
        assert docker("images", "--quiet", other) == docker("images", "--quiet", IMAGE + ":latest")
    finally:
        subprocess.call(["docker", "rmi", other])


@pytest.mark.parametrize(
    "options,words",
    [
        ({"image": "localhost/nobody"}, "bring it with provision.yml"),
        ({"image": BASE}, "has no MXNet"),
        ({"image_python": "python2.7"}, "name its Python with -e image_python"),
        ({"runtime": "podmann"}, "did you mean 'podman'"),
    ],
)
def test_bad_input_is_refused_with_its_cure(project, options, words):
    result, run = project.train(
        **dict({"runtime": "docker", "image": IMAGE, "job_id": "refused"}, **options)
    )
    assert result.code != 0 and not run.exists(), result.output
    assert words in " ".join(result.output.split()), result.output
