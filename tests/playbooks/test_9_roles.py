"""Tasks of single roles run on this machine as the only node, in a folder of the test."""

import json
import pwd

import pytest

from tests.playbooks.conftest import SOURCE as PROJECT
from tests.playbooks.conftest import role


def test_a_user_that_is_there_stays_as_he_is(play):
    name = next(
        entry.pw_name
        for entry in pwd.getpwall()
        if entry.pw_uid != 0 and entry.pw_shell != "/bin/bash"
    )
    options = dict(mxcluster_home="/opt/mxcluster", mxcluster_job_dir="/opt/mxcluster/jobs")
    results = play(role("training_user"), "--check", mxcluster_user=name, **options)
    assert not results["refused"] and results[
        "training_user : Create the account of the training user on the node"
    ].get("skipped"), results
    results = play(
        role("training_user"), "--check", mxcluster_user="nobody-of-that-name", **options
    )
    assert results["training_user : Create the account of the training user on the node"][
        "changed"
    ], results


@pytest.mark.parametrize(
    "variables, port",
    [
        ({"ansible_port": 2201}, 2201),
        ({"ansible_port": 2201, "ssh_mesh_port": 22}, 22),
    ],
)
def test_the_port_among_the_nodes_is_the_controllers_unless_told(play, variables, port):
    tasks = [
        {"ansible.builtin.import_role": {"name": "ssh_mesh", "tasks_from": "key.yml"}},
        {
            "name": "show",
            "ansible.builtin.import_role": {"name": "node_record", "tasks_from": "main.yml"},
        },
    ]
    results = play(
        tasks,
        "--check",
        ssh_mesh_mode="none",
        mxcluster_env_dir="/nowhere",
        mxcluster_state_dir="/nowhere",
        versions_chosen={"target": "cpu", "gpus": 0, "installed": None},
        **variables,
    )
    assert not results["refused"]
    (diff,) = results["node_record : Write the node's record on the controller"]["diff"]
    record = json.loads(diff["after"])
    assert record["ssh"]["port"] == port


@pytest.mark.parametrize("given", ["from a vault", "from a file"])
def test_a_given_key_ends_with_a_newline(play, tmp_path, given):
    (tmp_path / "key").write_text("BEGIN\nEND")
    options = {
        "from a vault": {"ssh_mesh_shared_key": "BEGIN\nEND", "ssh_mesh_shared_key_file": ""},
        "from a file": {
            "ssh_mesh_shared_key": "",
            "ssh_mesh_shared_key_file": str(tmp_path / "key"),
        },
    }[given]
    tasks = [
        {"ansible.builtin.include_vars": str(PROJECT / "roles" / "ssh_mesh" / "vars" / "main.yml")},
        {"name": "show", "ansible.builtin.debug": {"msg": "{{ __ssh_mesh_given_key }}"}},
    ]
    assert play(tasks, **options)["show"]["msg"] == "BEGIN\nEND\n"


def test_a_nodes_own_key_needs_none_on_the_controller(play, tmp_path):
    results = play(
        role("ssh_mesh", "key.yml"),
        "--check",
        mxcluster_user="nobody-of-that-name",
        mxcluster_state_dir=str(tmp_path),
    )
    assert (
        not results["refused"]
        and results["ssh_mesh : Install the training user's SSH key pair on the node"]["changed"]
    ), results


def test_check_mode_with_a_key_of_all_nodes_that_is_still_to_be_made(play, tmp_path):
    """The test covers a bare node, and a node whose key is to be replaced."""
    key = role("ssh_mesh", "key.yml")
    options = dict(
        ssh_mesh_mode="shared_key",
        mxcluster_user="nobody-of-that-name",
        mxcluster_state_dir=str(tmp_path / "state"),
    )
    results = play(key, "--check", **options)
    assert (
        not results["refused"]
        and results["ssh_mesh : Install the training user's SSH key pair on the node"]["changed"]
    ), results
    (tmp_path / "state" / "ssh").mkdir(parents=True)
    (tmp_path / "state" / "ssh" / "shared.pem").write_text("the old one\n")
    show = {"name": "show", "ansible.builtin.debug": {"msg": "{{ __ssh_mesh_given_key }}"}}
    assert play(key + [show], "--check", **options)["show"]["msg"] == "the old one\n"
    assert (
        play(key + [show], "--check", ssh_mesh_new_key=True, **options)["show"]["msg"]
        != "the old one\n"
    )
    assert (tmp_path / "state" / "ssh" / "shared.pem").read_text() == "the old one\n"


@pytest.mark.parametrize(
    "hosts, options, results",
    [
        (
            "one",
            {"ssh_mesh_new_key": True, "ssh_mesh_mode": "shared_key"},
            "--limit leaves out two",
        ),
        ("one", {"ssh_mesh_new_key": True}, ""),
        ("all", {"ssh_mesh_new_key": True, "ssh_mesh_mode": "shared_key"}, ""),
    ],
)
def test_a_new_key_is_for_all_nodes(play, hosts, options, results):
    refused = play(role("ssh_mesh", "refuse.yml"), hosts=hosts, **options)["refused"]
    assert results in refused and bool(refused) == bool(results)
