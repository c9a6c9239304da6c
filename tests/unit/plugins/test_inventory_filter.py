"""The part of Ansible's inventory that the plan needs."""

import pytest
from ansible.errors import AnsibleFilterError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from plugins.filter.mxcluster import mxcluster_inventory


def test_variables_of_the_nodes_of_a_batch_system_count():
    groups = {"scheduler": ["login"], "batch_nodes": ["n1", "login"], "others": ["x"]}
    hosts = {
        "login": {"ansible_host": "10.0.0.1", "a_fact": 1},
        "n1": {"worker_group": "far", "a_fact": 1},
        "x": {"worker_group": "none"},
    }
    assert mxcluster_inventory(hosts, groups) == {
        "groups": {"scheduler": ["login"], "servers": [], "workers": []},
        "hosts": {"login": {"ansible_host": "10.0.0.1"}, "n1": {"worker_group": "far"}},
    }


def test_a_host_variable_with_an_undefined_variable_is_refused(tmp_path):
    """The text of the template would be a label, and one group of all workers."""
    (tmp_path / "hosts.yml").write_text(
        "all:\n  vars: {worker_group: '{{ rack }}'}\n  hosts: {node1: {rack: a}, node2: {}}\n"
    )
    loader = DataLoader()
    hosts = InventoryManager(loader=loader, sources=[str(tmp_path / "hosts.yml")])
    variables = VariableManager(loader=loader, inventory=hosts)
    hostvars = HostVars(inventory=hosts, variable_manager=variables, loader=loader)
    found = mxcluster_inventory(hostvars, {"workers": ["node1"]})
    assert found["hosts"] == {"node1": {"worker_group": "a"}}
    with pytest.raises(AnsibleFilterError, match="worker_group .on node2. is refused.*rack"):
        mxcluster_inventory(hostvars, {"workers": ["node1", "node2"]})
