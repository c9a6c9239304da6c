"""Each role of provision.yml undoes its work in reset.yml, or has a reason not to."""

import pathlib

import pytest
import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[3]
RESET = yaml.safe_load((PROJECT / "roles" / "reset" / "vars" / "main.yml").read_text())
ON_NODES = RESET["__reset_roles"]
ON_CONTROLLER = ["node_record", "drift"]
# The reasons are in docs/reset.md.
STAYS = {
    "container_image": "other programs may use the image",
    "cuda": "other programs may use CUDA",
    "cudnn": "it is a part of CUDA's folder",
    "el7_repos": "without the archive's URLs yum finds no package",
    "nccl": "it is a part of CUDA's folder",
    "nvidia_driver": "other programs may use the driver",
    "preflight": "it changes no node",
    "versions": "it changes no node",
}


def roles_of(playbook):
    """Return the roles that a playbook imports or includes."""
    return {
        task[action]["name"]
        for play in yaml.safe_load((PROJECT / "playbooks" / playbook).read_text())
        for task in play["tasks"]
        for action in ("ansible.builtin.import_role", "ansible.builtin.include_role")
        if action in task
    }


def test_each_role_of_the_provisioning_is_undone_or_stays_for_a_reason():
    undone = {*ON_NODES, *ON_CONTROLLER}
    assert roles_of("provision.yml") == undone | set(STAYS) and not undone & set(STAYS)


@pytest.mark.parametrize("role", ON_NODES)
def test_a_role_registers_what_it_has_removed(role):
    tasks = yaml.safe_load((PROJECT / "roles" / role / "tasks" / "absent.yml").read_text())
    (removing,) = [task for task in tasks if "mxcluster_absent" in task]
    assert removing["register"] == role + "_absent"


def test_the_controller_forgets_the_node_last():
    main = yaml.safe_load((PROJECT / "roles" / "reset" / "tasks" / "main.yml").read_text())
    assert [task.get("loop") for task in main] == ["{{ __reset_roles }}", None, ON_CONTROLLER]
    for role in ON_CONTROLLER:
        assert (PROJECT / "roles" / role / "tasks" / "absent.yml").exists()
