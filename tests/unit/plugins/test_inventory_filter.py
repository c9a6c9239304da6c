"""The part of Ansible's inventory that the plan needs."""

from plugins.filter.mxcluster_inventory import mxcluster_inventory


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
