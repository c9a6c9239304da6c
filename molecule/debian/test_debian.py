"""Nodes with Debian 11, 12 and 13 get their password for sudo from a vault, and train together."""

import json
import secrets
import subprocess

import pytest

from tests.recap import changes

# Debian 12 and 13 also train in `make test`, in other scenarios and in tests/fresh.
pytestmark = pytest.mark.soak

PASSWORD, KEY = secrets.token_hex(16), secrets.token_hex(16)


@pytest.fixture(scope="module")
def vault(cluster, tmp_path_factory):
    """Return the arguments of a playbook: the inventory with a vault, and the key of the vault.

    From then on, sudo asks the login user of the nodes for the password.
    """
    folder = tmp_path_factory.mktemp("vault")
    for name in cluster.names:
        cluster.shell(name, "echo admin:%s | chpasswd" % PASSWORD)
        cluster.shell(name, "echo 'admin ALL=(ALL) ALL' > /etc/sudoers.d/admin")
    example = (cluster.project / "examples" / "vault.yml").read_text()
    (folder / "key").write_text(KEY)
    (folder / "hosts.yml").write_text("all: {}\n")
    variables = folder / "group_vars" / "all"
    variables.mkdir(parents=True)
    (variables / "main.yml").write_text('ansible_become_password: "{{ vault_become_password }}"\n')
    (variables / "vault.yml").write_text(example.replace("change me", PASSWORD))
    unlock = ["--vault-password-file", str(folder / "key")]
    subprocess.check_call(["ansible-vault", "encrypt", *unlock, str(variables / "vault.yml")])
    return ["--inventory", str(folder / "hosts.yml"), *unlock]


def test_a_node_that_asks_for_a_password_is_refused(cluster, vault):
    result = cluster.play("provision.yml")
    assert result.code and "set ansible_become_password in a vault" in result.output, result.output
    assert all(name in result.output for name in cluster.names), result.output


def test_each_release_is_provisioned(cluster, vault):
    result = cluster.play("provision.yml", *vault)
    assert result.code == 0, result.output[-5000:]
    records = [
        json.loads((cluster.state / "nodes" / (name + ".json")).read_text())
        for name in cluster.names
    ]
    pythons = [record["python_version"].rpartition(".")[0] for record in records]
    assert pythons == ["3.9", "3.11", "3.13"], records
    again = cluster.play("provision.yml", *vault)
    assert again.code == 0 and not any(changes(again.output).values()), again.output


def test_the_releases_train_together(cluster, vault):
    job = cluster.train(*vault, "-vvv", kv="dist_gsync", job_id="together", num_epochs=15)
    assert job.result.code == 0 and job.verdict["accuracy"] >= 0.9, job.result.output[-5000:]
    assert sorted(job.verdict["nodes"]) == cluster.names, job.verdict
    assert PASSWORD not in job.result.output and KEY not in job.result.output


def test_no_file_has_the_password_of_the_vault(cluster):
    # grep fails without a match. The test compares the list of files, which is then empty.
    command = "grep -rlFe %s -e %s /opt/mxcluster /etc/mxcluster /home /tmp || true" % (
        PASSWORD,
        KEY,
    )
    assert {cluster.shell(name, command) for name in cluster.names} == {""}
    for folder in (cluster.runs, cluster.state, cluster.project / ".state" / "ansible"):
        found = subprocess.run(
            ["grep", "-rlF", "-e", PASSWORD, "-e", KEY, str(folder)], stdout=subprocess.PIPE
        )
        assert not found.stdout, found.stdout
    assert list(cluster.runs.glob("together/report.html"))
