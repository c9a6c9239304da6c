"""Names that are given with -e, as the action plugin sees them: with Ansible's own variables and a real inventory."""
from unittest import mock

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from plugins.action import mxcluster_names as plugin
from tests.ansible_modules import PROJECT

HOSTS = "all:\n  vars: {site_name: x, site_text: '{{ site_secret }}'}\n  hosts:\n    node1: {}\n"


@pytest.fixture
def look(tmp_path, monkeypatch):
    """look(playbook, name=value, ...): the result of the task; `inventory` has more variables for all hosts."""
    def run(playbook="train.yml", inventory="", **extra):
        (tmp_path / "hosts.yml").write_text(HOSTS.replace("site_name: x", "site_name: x" + inventory))
        loader = DataLoader()
        hosts = InventoryManager(loader=loader, sources=[str(tmp_path / "hosts.yml")])
        variables = VariableManager(loader=loader, inventory=hosts)
        variables._extra_vars = dict(extra)
        monkeypatch.setattr(plugin, "load_extra_vars", lambda loader: dict(extra))
        monkeypatch.setattr(plugin.context, "CLIARGS", {"args": [str(PROJECT / playbook)]})
        hostvars = HostVars(inventory=hosts, variable_manager=variables, loader=loader)
        action = plugin.ActionModule(mock.Mock(async_val=0, check_mode=False), mock.Mock(), mock.Mock(), loader, None, None)
        action._display = mock.Mock()
        return action.run(task_vars=dict(variables.get_vars(host=hosts.get_host("node1")), hostvars=hostvars))
    return run


@pytest.mark.parametrize("playbook, given, words", [
    ("train.yml", {"bath_size": 64}, "-e bath_size: no role, playbook or inventory knows a variable of this name"),
    ("playbooks/train.yml", {"bath_size": 64}, "did you mean 'batch_size'"),
    ("logs.yml", {"job": "j", "line": 5}, "did you mean 'lines'"),
    ("train.yml", {"attach": "j", "lr": 0.1}, "-e lr: train.yml -e attach=<job> goes on with the plan"),
    ("train.yml", {"attach": "j", "num_epoch": 3}, "-e num_epoch: no role")])
def test_what_nothing_reads_is_refused(look, playbook, given, words):
    result = look(playbook, **given)
    assert result["failed"] and words in result["msg"], result


def test_what_something_reads_is_taken(look):
    """Ansible's own, knobs, variables of roles, and what the inventory defines or uses; and all, for a site's own playbook."""
    given = {"ansible_mine": 1, "lr": 0.2, "train_job_kv": "local", "site_name": "y", "site_secret": "z"}
    assert look(**given) == {"changed": False, "notes": []}
    assert look(attach="j", runs_dir="/runs", ansible_user="me") == {"changed": False, "notes": []}
    assert look("tests/unit/plugins/site.yml", whatever=1) == {"changed": False, "notes": []}


def test_a_bare_variable_of_the_inventory_is_told_of_and_never_attaches(look):
    (note,) = look(inventory=", env: production")["notes"]
    assert "env is a variable of the inventory" in note and "train_job_env in the inventory" in note
    assert look(inventory=", env: production", env="X=1")["notes"] == []
    assert "attach is a variable of the inventory" in look(inventory=", attach: j")["msg"]
