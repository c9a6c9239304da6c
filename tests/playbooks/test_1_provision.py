"""provision.yml on the local inventory reports correctly, is idempotent, and writes to .state."""

import json
import os
import shutil

import pytest

from mxcluster.cluster import drift
from tests.recap import changes

# A test that finds a node unchanged. The second docker engine of the scenario container adds an
# interface to this machine, and interfaces are facts of nodes.
unchanged = pytest.mark.alone


ROLES = "TASK [mxnet : Copy the package mxcluster to the node]"  # in the log
# The nodes share one environment, which these tests damage. One node takes a quarter of the time.
ONE = ("--limit", "node1,localhost")


@pytest.fixture
def complete(project):
    """Return the project, with node1 complete: another test may have left node1 halfway."""
    state = project.path / ".state" / "local" / "drift" / "node1.json"
    if not drift.remembered(str(state)).digests:
        done = project.run("provision.yml", *ONE)
        assert done.code == 0, done.output
    return project


def test_provision_writes_into_the_state_folder_only(project):
    assert project.written == set() and any(changes(project.first.output).values())


@unchanged
def test_check_mode_after_it_has_nothing_to_promise(complete):
    result = complete.run("provision.yml", "--check", "-e", "drift_anyway=true", *ONE)
    assert result.code == 0 and set(changes(result.output).values()) == {0}, result.output
    assert ROLES in complete.ansible_log(), result.output


def left_alone(project, *arguments):
    """Return True if provision.yml found nothing to do and ran no role, and its output."""
    result = project.run("provision.yml", *arguments)
    assert result.code == 0, result.output
    runs_roles = ROLES in project.ansible_log()
    assert runs_roles == any(changes(result.output).values()), result.output
    return not runs_roles, result.output


@unchanged
def test_what_somebody_has_damaged_is_seen_and_mended(complete):
    """The check covers the package in the environment that all four nodes share here."""
    (module,) = complete.path.glob(
        ".state/local/lib/mxcluster-*/mxcluster/training/programs/image_classification/training.py"
    )
    whole = module.read_text()
    module.write_text("")
    alone, output = left_alone(complete, *ONE)
    assert (
        not alone and output.count("%s has changed" % module) == 1 and module.read_text() == whole
    ), output


@pytest.mark.soak  # a node of molecule/default is left halfway
@unchanged
def test_a_node_that_was_left_halfway_is_gone_through_again(project):
    digits = project.path / ".state" / "local" / "data" / "digits.npz"
    digits.unlink()
    digits.mkdir()
    failed = project.run("provision.yml", *ONE)
    assert (
        failed.code != 0
        and "%s is gone" % digits not in failed.output
        and str(digits) in failed.output
    ), failed.output
    digits.rmdir()
    alone, output = left_alone(project, *ONE)
    assert not alone and output.count("provision.yml has never completed for this node") == 1, (
        output
    )
    assert left_alone(project, *ONE)[0]


def test_limit_to_one_node_leaves_the_records_of_the_others(project):
    """Leftovers of an interrupted job are removed on the provisioned node only."""
    leases = [
        project.path / ".state" / "local" / "jobs" / node / "cut-off" / "lease"
        for node in ("node1", "node2")
    ]
    for lease in leases:
        lease.parent.mkdir(parents=True)
        lease.write_text("")
        os.utime(str(lease.parent), (1, 1))
    before = sorted(path.name for path in project.path.glob(".state/local/nodes/*.json"))
    result = project.run("provision.yml", "--limit", "node2")
    assert result.code == 0, result.output
    assert (
        before
        == sorted(path.name for path in project.path.glob(".state/local/nodes/*.json"))
        == ["node%d.json" % number for number in range(1, 5)]
    )
    assert [lease.exists() for lease in leases] == [True, False], result.output
    for lease in leases:
        shutil.rmtree(str(lease.parent))


HOSTILE = {
    "hostname": "node1\n    ProxyCommand touch /tmp/evil",
    "host_keys": ["@cert-authority * ssh-ed25519 AAAA"],
    "host": "node2",
    "python": "/tmp/evil",
    "interfaces": {"lo": ["127.0.0.1/8"]},
    "address_of_default_route": None,
    "gpus": 0,
    "python_version": "3.11.7",
    "mxnet": "1.9.1",
    "numpy": "1.23.5",
    "model_zoo": [],
}
STAND_IN = """#!/bin/sh
case "$*" in *mxcluster.entry*)
    request=$(cat)
    case $request in *'"command": "record"'*) cat %s; exit 0 ;; esac
    printf %%s "$request" | exec %s/python3 "$@"
esac
exec %s/python3 "$@"
"""


def test_a_node_that_tells_what_cannot_be_is_refused_by_name(project, tmp_path):
    """Invalid fields of a node record are refused, since ssh files and root use them."""
    records = {path: path.read_text() for path in project.path.glob(".state/local/nodes/*.json")}
    assert len(records) == 4 and all(
        '/bin/python"' in text and '"schema": 2' in text for text in records.values()
    )
    programs = project.path / ".state" / "local" / "env" / "bin"
    (tmp_path / "hostile.json").write_text(json.dumps({"record": HOSTILE}))
    python, real = programs / "python", programs / "python.real"
    python.rename(real)
    try:
        python.write_text(STAND_IN % (tmp_path / "hostile.json", programs, programs))
        python.chmod(0o755)
        result = project.run("provision.yml", *ONE)
    finally:
        real.replace(python)
    assert (
        result.code != 0
        and "the answer of node1 to the command record is invalid: record.hostname="
        in result.output
    ), result.output
    assert (
        "Traceback" not in result.output and {path: path.read_text() for path in records} == records
    )


def test_a_python_that_does_not_fit_is_refused(project):
    result = project.run("provision.yml", "-e", "mxnet_version=1.2.1")
    assert result.code != 0 and "1.2.1" in result.output and "3.8" in result.output, result.output


# Tags that write nothing on the nodes of a local inventory have the value [].
WRITTEN = {
    "mxnet": ["nodes/node1.json", "nodes/node2.json"],
    "datasets": ["own/digits.npz"],
    "cluster_files": ["nodes/node1.json", "etc/hosts"],
    "training_user": ["jobs/node1"],
    "ssh_mesh": ["nodes/node1.json"],
    **dict.fromkeys(("el7_repos", "nvidia_driver", "cuda", "cudnn", "nccl", "agent_unit"), []),
}


@pytest.mark.soak  # molecule/el7 installs with the tag of the driver
@pytest.mark.parametrize("tag", WRITTEN)
def test_a_tag_works_alone_on_bare_nodes(project, tag):
    """Of the nodes' folders only the environment and its package exist: they take most time."""
    cluster = ("-i", project.inventory("tag-" + tag))
    folder = project.path / ".state" / ("tag-" + tag)
    places = {
        "mxcluster_state_dir": str(folder),
        "mxcluster_env_dir": str(project.path / ".state" / "local" / "env"),
        "mxcluster_lib_dir": str(project.path / ".state" / "local" / "lib"),
        "mxcluster_data_dir": str(folder / "own"),
    }
    done = project.run("provision.yml", *cluster, "--tags", tag, "-e", json.dumps(places))
    assert done.code == 0, done.output
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    assert set(WRITTEN[tag]) <= set(found), found
    assert tag != "mxnet" or not {"etc/hosts", "own/digits.npz"} & set(found), found
    # A part is not the whole: the next run goes through all roles.
    assert not list(folder.glob("drift/*.json"))
