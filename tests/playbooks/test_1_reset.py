"""reset.yml undoes provision.yml, and a node that comes or goes leaves the others alone."""

import json

import pytest

from tests.playbooks.conftest import On
from tests.playbooks.test_1_provision import ROLES, unchanged
from tests.recap import changes
from tests.training.environments import NEWEST, copy_environment

FILES = "TASK [cluster_files : Write the files hosts, groups and data_sharding on the node]"


@pytest.fixture(scope="module")
def cluster(project):
    """Return the project with a provisioned cluster of two nodes, and the state folder of it."""
    made = On(project, project.small_inventory("reset"))
    made.state = project.path / ".state" / "reset"
    copy_environment(NEWEST, made.state / "env")
    done = made.run("provision.yml")
    assert done.code == 0, done.output
    return made


def files_of(cluster):
    """Return the paths in the state folder, without logs and what a playbook writes meanwhile."""
    return {
        path
        for path in cluster.state.rglob("*")
        if path.suffix != ".log" and not {"tmp", "__pycache__"} & set(path.parts)
    }


@pytest.mark.soak  # so does a node of molecule/cluster; only the soak lets one come back
@unchanged
def test_a_node_that_goes_sends_no_other_node_through_the_roles(cluster):
    """And so does a node that comes back, which alone goes through them."""
    inventory = cluster.path / "inventory" / "reset" / "hosts.yml"
    both = inventory.read_text()
    alone = both.split("        node2:\n          node_address")[0].replace("        node2:\n", "")
    hosts = cluster.state / "etc" / "hosts"
    before = hosts.read_text()
    try:
        inventory.write_text(alone)
        done = cluster.run("provision.yml")
        assert done.code == 0 and "node1: needs new cluster files and SSH files" in done.output, (
            done.output
        )
        log = cluster.ansible_log()
        assert ROLES not in log and FILES in log and hosts.read_text() != before, log
        assert set(changes(cluster.run("provision.yml").output).values()) == {0}
    finally:
        inventory.write_text(both)
    done = cluster.run("provision.yml")
    assert done.code == 0 and "node1: needs new cluster files" in done.output, done.output
    through = cluster.ansible_log().split(ROLES)[1].split("TASK [")[0]
    assert "[node2]" in through and "[node1]" not in through, through
    assert hosts.read_text() == before


def test_an_unknown_part_is_refused_before_any_change(cluster):
    before = files_of(cluster)
    result = cluster.run("reset.yml", "-e", "also=home")
    assert result.code != 0 and "did you mean 'homes'" in result.output, result.output
    assert files_of(cluster) == before


def test_a_reset_cluster_has_only_what_a_person_has_changed_and_trains_again(cluster):
    """A running job refuses the reset. A second reset changes nothing."""
    options = {"num_epochs": 1000, "step_ms": 20, "num_workers": 2}
    started, _ = cluster.train(job_id="reset-long", detach=True, **options)
    assert started.code == 0, started.output
    refused = cluster.run("reset.yml")
    assert refused.code != 0 and "reset-long on node1" in refused.output, refused.output
    assert (cluster.state / "env" / "bin" / "python").exists()
    assert cluster.run("stop.yml", "-e", "job=reset-long").code == 0

    hosts = cluster.state / "etc" / "hosts"
    hosts.write_text(hosts.read_text() + "# of a person\n")
    (cluster.state / "env-packages" / "of-a-job").mkdir(parents=True)
    before = files_of(cluster)
    checked = cluster.run("reset.yml", "--check")
    assert checked.code == 0 and "to remove %s" % (cluster.state / "env") in checked.output, (
        checked.output
    )
    assert files_of(cluster) == before

    done = cluster.run("reset.yml")
    assert done.code == 0, done.output
    parts = ("env", "env-packages", "lib", "data", "etc/groups", "nodes/node1.json")
    left = [part for part in parts if (cluster.state / part).exists()]
    assert left == [] and "%s: changed by hand" % hosts in done.output, (left, done.output)
    jobs = cluster.state / "jobs" / "node1"
    assert hosts.exists() and (jobs / "reset-long").exists() and "holds reset-long" in done.output
    again = cluster.run("reset.yml")
    assert again.code == 0 and set(changes(cluster.ansible_log()).values()) == {0}, again.output
    assert "%s: changed by hand" % hosts in again.output

    done = cluster.run("reset.yml", "-e", "also=data")
    assert done.code == 0 and not jobs.exists() and hosts.exists(), done.output
    hosts.unlink()
    train_elsewhere(cluster)


def train_elsewhere(cluster):
    """Provision the folders of the cluster that was reset for another cluster, and train there."""
    other = On(cluster.project, cluster.project.small_inventory("other"))
    copy_environment(NEWEST, cluster.state / "env")
    places = json.dumps({"mxcluster_home": str(cluster.state)})
    done = other.run("provision.yml", "-e", places)
    assert done.code == 0, done.output
    trained, folder = other.train("-e", places, job_id="elsewhere", num_epochs=1)
    assert trained.code == 0 and (folder / "verdict.json").exists(), trained.output
