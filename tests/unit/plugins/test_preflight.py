"""Refusals before any play, in the action plugin with Ansible's variables and an inventory."""

from unittest import mock

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from plugins.action import mxcluster_preflight as plugin
from tests.ansible_modules import PROJECT

HOSTS = "all:\n  vars: {site_name: x, site_text: '{{ site_secret }}'}\n  hosts:\n    node1: {}\n"


@pytest.fixture
def look(tmp_path, monkeypatch):
    """Return look(playbook, name=value, ...), which gives the task's result.

    `inventory` has more variables for all `hosts`.
    """

    def run(
        playbook="train.yml", inventory="", groups=("all",), paths=(), forks=5, hosts=HOSTS, **extra
    ):
        (tmp_path / "hosts.yml").write_text(
            hosts.replace("site_name: x", "site_name: x" + inventory)
        )
        loader = DataLoader()
        hosts = InventoryManager(loader=loader, sources=[str(tmp_path / "hosts.yml")])
        variables = VariableManager(loader=loader, inventory=hosts)
        variables._extra_vars = dict(extra)
        monkeypatch.setattr(plugin, "load_extra_vars", lambda loader: dict(extra))
        monkeypatch.setattr(plugin.context, "CLIARGS", {"args": [str(PROJECT / playbook)]})
        hostvars = HostVars(inventory=hosts, variable_manager=variables, loader=loader)
        arguments = {
            "command": "controller",
            "groups": list(groups),
            "paths": list(paths),
            "known_hosts": str(tmp_path / "state" / "known_hosts"),
            "name": "mine",
        }
        task = mock.Mock(async_val=0, check_mode=False, args=arguments)
        of_the_host = variables.get_vars(host=hosts.get_host("node1"))
        templar = Templar(loader, variables=of_the_host)
        action = plugin.ActionModule(task, mock.Mock(), mock.Mock(), loader, templar, None)
        action._display = mock.Mock()
        return action.run(task_vars=dict(of_the_host, hostvars=hostvars, ansible_forks=forks))

    return run


def refuses(result, *words):
    """Check that a task has failed with a message that contains all words."""
    assert result["failed"] and all(word in result["msg"] for word in words), result
    return True


@pytest.mark.parametrize(
    "playbook, given, words",
    [
        (
            "train.yml",
            {"attach": "j", "lr": 0.1},
            "-e lr is not allowed beside -e attach=<job>",
        ),
        ("train.yml", {"attach": "{{ nix }}"}, "'nix' is undefined"),
        ("profile.yml", {"apply": "maybe"}, "apply='maybe' is refused: it must be true or false"),
    ],
)
def test_an_unused_variable_is_refused(look, playbook, given, words):
    refuses(look(playbook, **given), words)


def test_a_used_variable_is_accepted(look):
    """Ansible's own, knobs, variables of roles, and names that the inventory defines or uses.

    A site's own playbook accepts all names.
    """
    given = {
        "ansible_mine": 1,
        "lr": 0.2,
        "train_job_kv": "local",
        "site_name": "y",
        "site_secret": "z",
    }
    fine = {"changed": False, "notes": [], "state_dir": ""}
    assert look(**given) == fine
    assert look("profile.yml", apply="{{ site_name }}", site_name="yes")["notes"] == []
    assert look(attach="j", runs_dir="/runs", ansible_user="me") == fine
    assert look("tests/unit/plugins/site.yml", whatever=1) == fine


def test_a_bare_variable_of_the_inventory_is_noted_and_never_attaches(look):
    (note,) = look(inventory=", env: production")["notes"]
    assert "env is a variable of the inventory" in note and "train_job_env in the inventory" in note
    assert look(inventory=", env: production", env="X=1")["notes"] == []
    assert "attach is a variable of the inventory" in look(inventory=", attach: j")["msg"]


@pytest.mark.slow
def test_a_misspelt_name_of_the_inventory_is_refused(look):
    """In an earlier version only the names of -e were checked."""
    for name, known in (("worker_shar", "worker_share"), ("mxnet_verson", "mxnet_version")):
        for playbook in ("train.yml", "provision.yml"):
            refuses(look(playbook, inventory=", %s: 5" % name), "did you mean %s?" % known)
    (note,) = look(inventory=", verify_rack: 5")["notes"]
    assert "verify_rack begins with the name of a role" in note


def test_an_unknown_command_is_refused_with_the_known_ones():
    """A misspelt `connection` must not check the controller instead of the node."""
    task = mock.Mock(async_val=0, check_mode=False, args={"command": "link"})
    words = "command='link' is not one of controller, connection"
    action = plugin.ActionModule(task, mock.Mock(), mock.Mock(), None, None, None)
    refuses(action.run(task_vars={"groups": {}}), words)


@pytest.mark.parametrize(
    "controller, words",
    [
        (
            ("2.15.13", "3.11.2", "Linux", "x86_64", []),
            "This is ansible-core 2.15.13; mxcluster needs 2.16 or newer. Run `make venv`",
        ),
        (
            ("2.16.19", "3.11.2", "Linux", "x86_64", ["mxcluster", "sklearn"]),
            "cannot import mxcluster, sklearn. Run `make venv`",
        ),
    ],
)
def test_an_unsuitable_controller_is_refused(controller, words):
    assert words in plugin.refused_controller(*controller)


def test_facts_that_would_replace_variables_are_refused(look, monkeypatch):
    """A node's fact mxcluster_state_dir would be a path on the controller."""
    assert "inject_facts_as_vars" not in str(look().get("msg"))
    monkeypatch.setenv("ANSIBLE_INJECT_FACT_VARS", "True")
    refuses(look(), "Ansible's setting inject_facts_as_vars is on", "in your own ansible.cfg")


@pytest.mark.parametrize("core", ["2.16.19", "2.22.0rc1", "3.0.1"])
def test_a_suitable_controller_is_accepted(core):
    for python in ("3.10.0", "3.13.5"):
        assert plugin.refused_controller(core, python, "Linux", "x86_64", []) is None


def test_an_unsuitable_inventory_is_refused(look):
    refuses(
        look(groups=["all", "workers"]),
        "The inventory group workers does not exist (",
        "mxcluster needs the groups all, workers, each with at least one host",
    )
    result = look(groups=["ungrouped", "all"], forks=0)
    refuses(result, "forks is 0, and there are 1 nodes", "--forks 1")


@pytest.mark.parametrize("path", ["/home/my folder", "/srv/{x}"])
def test_a_path_with_special_characters_is_refused(look, path):
    words = 'The path "%s" contains a space or another character' % path
    refuses(look(paths=["/srv/fine", path]), words)
    assert not look(paths=["/srv/fine-1_2.3/@+,=", "/srv/\u00fcber"]).get("failed")


@pytest.mark.slow
def test_a_host_key_of_the_inventory_is_stored_until_its_removal(look, tmp_path):
    known = tmp_path / "state" / "known_hosts"
    assert not look()["changed"] and not known.exists()
    keys = ", node_host_key: ssh-ed25519 AAAA, ansible_port: 2222"
    assert look(inventory=keys)["changed"] and known.stat().st_mode & 0o777 == 0o600
    block = (
        "# BEGIN of the inventory mine\n[node1]:2222 ssh-ed25519 AAAA\n"
        "# END of the inventory mine\n"
    )
    assert known.read_text() == block and not look(inventory=keys)["changed"]
    known.write_text(block + block.replace("mine", "theirs"))
    assert not look(inventory=keys)["changed"], "another inventory has written its block since"
    known.write_text(
        "other ssh-rsa BBBB\n" + block.replace("mine", "theirs") + block.replace("AAAA", "CCCC")
    )
    assert look(inventory=keys)["changed"]
    assert known.read_text() == "other ssh-rsa BBBB\n" + block.replace("mine", "theirs") + block
    assert look()["changed"] and known.read_text() == "other ssh-rsa BBBB\n" + block.replace(
        "mine", "theirs"
    )
    assert [path.name for path in known.parent.iterdir()] == ["known_hosts"]


@pytest.mark.parametrize(
    "inventory, words",
    [
        (", ssh_mesh_mode: none", None),
        (", ssh_mesh_mode: nothing", "value of ssh_mesh_mode must be one of: own_keys, shared_key"),
        (", verify_min_disk_mb: much", "verify_min_disk_mb='much' is refused: it must be a whole"),
        (", gpu_required: \"{{ ansible_facts.distribution == 'CentOS' }}\"", None),
        (", ssh_mesh_mode: !vault 'in no vault'", None),
    ],
)
def test_an_invalid_value_of_a_roles_variable_is_refused(look, inventory, words):
    """One check for all roles; Ansible would check on each node, in each play."""
    result = look(inventory=inventory)
    assert refuses(result, words, "(on node1)") if words else not result.get("failed")


@pytest.mark.parametrize("name", ["ssh_mesh_mode", "mxnet_packages"])
@pytest.mark.parametrize(
    "value, words",
    [
        ("'{{ nix }}'", "nix"),
        ("['{{ nix }}']", "nix"),
        ("'{{ site_name.engine }}'", "engine"),
        ("'{{ nix | default(omit) }}'", None),
        ("'{{ site_name }}'", None),
        ("'{{ other }}', other: '{{ ansible_facts.distribution }}'", None),
        ("'{{ hostvars.node9.x }}'", None),
        ("'{{ verify_min_disk_mb }}'", None),
        ('\'{{ lookup("ansible.builtin.file", "/none") }}\'', None),
    ],
)
def test_a_template_with_an_undefined_variable_is_refused(look, name, value, words):
    """Some roles read variables of others with `default`, which would hide the fault."""
    result = look(inventory=", %s: %s" % (name, value))
    undefined = "%s (on node1) is refused, because its template uses an undefined variable (" % name
    if words:
        refuses(result, undefined, words, "or remove " + name)
    else:
        assert not result.get("failed"), result


def test_a_template_of_a_knob_is_left_to_the_playbook_that_reads_it(look):
    """provision.yml does not need the variables of a training."""
    assert not look("provision.yml", inventory=", train_job_kv: '{{ nix }}'").get("failed")


def test_values_of_the_controllers_host_are_checked(look):
    """Also in no group of nodes; hosts outside every play are not checked."""
    hosts = (
        "all:\n  hosts: {node1: {%s}, other: {ssh_mesh_mode: nothing}}\n"
        "  children: {nodes: {hosts: {node2: {}}}}\n"
    )
    assert not look(groups=["nodes"], hosts=hosts % "ssh_mesh_mode: none").get("failed")
    result = look(groups=["nodes"], hosts=hosts % "train_job_num_epochs: many")
    refuses(result, "train_job_num_epochs", "(on node1)")


def test_a_controller_that_cannot_import_the_package_gets_the_cure(look, monkeypatch):
    """The package is there, its imports are missing: one message serves filters and actions."""
    monkeypatch.setattr(plugin, "knobs", None)
    refuses(look(), "cannot import mxcluster. Run `make venv`")


@pytest.mark.slow
def test_the_child_of_a_sweep_accepts_the_names_of_its_command_line(look, monkeypatch):
    """`target` is a knob of compare.yml, whose first command has checked all names."""
    given = {"target": 0.9, "seeds": 2, "lr": 0.1}
    assert "target" in look("train.yml", **given)["msg"]
    monkeypatch.setenv("MXCLUSTER_ATTEMPT", "compare.yml")
    for playbook in ("train.yml", "stop.yml"):
        assert not look(playbook, **given).get("failed")
    assert "bath_size" in look("train.yml", bath_size=64, **given)["msg"]
    monkeypatch.setenv("MXCLUSTER_ATTEMPT", "benchmark.yml")
    assert "target" in look("train.yml", **given)["msg"]


@pytest.mark.parametrize(
    "playbook, name",
    [("benchmark.yml", "seeds"), ("compare.yml", "networks"), ("compare.yml", "kv")],
)
def test_a_sweep_refuses_the_knobs_that_it_does_not_read(look, playbook, name):
    assert "%s does not read it" % playbook in look(playbook, **{name: 1})["msg"]


def test_an_inventory_without_hosts_is_refused():
    message = plugin.checks.refused_groups(["workers"], {"all": [], "ungrouped": []}, ["/nowhere"])
    assert "Ansible has read no host from the inventory /nowhere" in message


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["free", "ansible.builtin.host_pinned"])
def test_a_strategy_that_lets_nodes_run_ahead_is_refused(look, monkeypatch, strategy):
    monkeypatch.setattr(plugin.C, "DEFAULT_STRATEGY", strategy)
    refuses(look(), "strategy is %s" % strategy)
    for good in ("linear", "ansible.builtin.linear", "debug"):
        monkeypatch.setattr(plugin.C, "DEFAULT_STRATEGY", good)
        assert not look().get("failed")
