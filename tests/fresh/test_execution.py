"""The execution environment is built from its definition, and its image provisions and trains."""

import re
import shutil
import subprocess
import sys
import uuid

import pytest

from tests.fresh.test_debian import PROJECT, run, settings_of_this_machine
from tests.playbooks.conftest import Project

pytestmark = pytest.mark.soak  # about three minutes


def give(folder, uid):
    """Give a folder with all its files to the user of the image."""
    for path in [folder, *folder.rglob("*")]:
        shutil.chown(str(path), uid)


def test_the_image_of_the_definition_trains(tmp_path):
    project = Project(tmp_path).path
    base = subprocess.check_output([str(PROJECT / "tools" / "node-image.sh"), "bare-bookworm"])
    image = "mxcluster-execution:%s" % uuid.uuid4().hex[:8]
    wanted = ["requirements/core-2.16.txt", "requirements/execution.txt"]
    python = [sys.executable, "-m"]
    fetched = run(
        *(*python, "pip", "download", "--quiet", "--require-hashes", "--only-binary", ":all:"),
        *("--python-version", "3.11", "--dest", ".state/cache/execution"),
        *(word for path in wanted for word in ("-r", path)),
        cwd=str(project),
    )
    assert fetched.returncode == 0, fetched.stdout.decode()
    try:
        built = run(
            *(*python, "ansible_builder", "build", "--container-runtime", "docker", "-v", "3"),
            *("--build-arg", "EE_BASE_IMAGE=" + base.decode().strip(), "--tag", image),
            cwd=str(project),
        )
        assert built.returncode == 0, built.stdout.decode()
        give(project, 1000)
        options = ["--rm", "--volume", "%s:/runner/project" % project]
        playbooks = "ansible-playbook provision.yml && ansible-playbook train.yml -e kv=dist_gsync"
        ran = run(
            *("docker", "run", *options, *settings_of_this_machine(), image),
            *("bash", "-c", playbooks),
        )
        output = ran.stdout.decode()
        assert ran.returncode == 0, output
        assert re.search(r"^OK +job \S+-dist_gsync .* all 9 processes exited with 0", output, re.M)
        assert list(project.glob("runs/*/report.html")), output
    finally:
        run("docker", "rmi", "--force", image)
