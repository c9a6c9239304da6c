"""A site without a network uses a bundle, and every file in it is checked."""

import os
import shutil
import subprocess

import pytest

# A network namespace with the loopback interface only.
CUT = ["unshare", "--map-root-user", "--net", "sh", "-ec", 'ip link set lo up; exec "$@"', "sh"]


def make(project, *arguments, cut=False):
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(project.home),
        "TMPDIR": str(project.tmp),
        "LC_ALL": "C.UTF-8",
    }
    environment.update(
        {name: value for name, value in os.environ.items() if name.startswith("PIP_") and not cut}
    )
    return subprocess.run(
        [*(CUT if cut else []), *map(str, arguments)],
        cwd=str(project.path),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=400,
    )


@pytest.fixture(scope="module")
def bundle(project, tmp_path_factory):
    """Return a bundle made by a provisioned project, whose downloads are reused."""
    path = tmp_path_factory.mktemp("bundle") / "mxcluster-bundle.tar"
    done = make(project, shutil.which("python"), "tools/bundle.py", "make", path)
    assert done.returncode == 0, done.stdout.decode()
    return path


@pytest.mark.soak
def test_from_the_bundle_to_a_trained_network(bundle, tmp_path):
    from tests.playbooks.conftest import Project

    site = Project(tmp_path)
    done = make(site, "make", "venv", "BUNDLE=%s" % bundle, cut=True)
    assert done.returncode == 0, done.stdout.decode()
    programs = site.path / ".venv" / "bin"
    command = [
        "env",
        "PATH=%s:%s" % (programs, os.environ["PATH"]),
        "ansible-playbook",
        "-i",
        site.small_inventory(),
    ]
    for arguments in (["provision.yml"], ["train.yml", "-e", "num_epochs=2"]):
        done = make(site, *command, *arguments, cut=True)
        assert done.returncode == 0, done.stdout.decode()
    assert b"OK        job" in done.stdout


def test_without_a_bundle_it_says_what_is_missing(tmp_path, project):
    """The message names the missing wheel, its sha256 and the folder for it."""
    store = tmp_path / "empty"
    done = make(
        project,
        "env",
        "PATH=" + os.environ["PATH"],
        "PIP_RETRIES=0",
        "ansible-playbook",
        "provision.yml",
        *("--limit", "node1,localhost"),
        "-e",
        "mxnet_store_dir=%s" % store,
        "-e",
        "mxcluster_env_dir=%s" % (tmp_path / "env"),
        cut=True,
    )
    assert done.returncode != 0
    digest = "65d5dac162c87a14d138d888b54494d515036d9047ae804ff51f770bd02197a6"
    for part in ("the wheel of mxnet 1.9.1 for Python", digest, str(store)):
        assert part in done.stdout.decode(), done.stdout.decode()
    assert not (tmp_path / "env").exists()
