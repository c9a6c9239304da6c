"""Fixtures of the scenario container: a provisioned copy of the project, and its image."""

import json
import os
import subprocess

import pytest

from tests.playbooks.conftest import Project
from tests.training.environments import NEWEST, copy_environment

BASE = os.environ["MXCLUSTER_NODE_IMAGE"]  # it has Python, libraries of MXNet's wheels, MPI engines
IMAGE = "localhost/mxcluster-%s-test" % os.environ["MXCLUSTER_RUN"]
ENGINE = {"container_image_engine": "docker", "container_image_name": IMAGE}


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """Yield a provisioned copy. This machine's engine has the image, and `built` is the result.

    As in tests/playbooks, the environment with MXNet is a copy of that of other tests.
    """
    made = Project(tmp_path_factory.mktemp("project"))
    copy_environment(NEWEST, made.path / ".state" / "local" / "env")
    subprocess.call(["docker", "rmi", "--force", IMAGE], stderr=subprocess.DEVNULL)
    given = json.dumps(dict(ENGINE, container_image_base=BASE))
    made.built = made.run("provision.yml", "-e", given, timeout=900)
    assert made.built.code == 0, made.built.output
    yield made
    subprocess.call(["docker", "rmi", "--force", IMAGE])


@pytest.fixture(scope="session")
def image(project):
    """Return the name of the image on this machine."""
    return IMAGE
