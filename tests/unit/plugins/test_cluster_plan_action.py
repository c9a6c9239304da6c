"""The action plugin mxcluster_cluster_plan; tests/unit/job/plan tests the plan itself."""

from plugins.action import mxcluster_cluster_plan
from tests import ansible_modules

HOSTS = {
    "one": {"node_address": "10.0.0.1"},
    "two": {"node_address": "10.0.0.2"},
}
INVENTORY = {
    "groups": {"scheduler": ["one"], "servers": ["one"], "workers": ["one", "two"]},
    "hosts": HOSTS,
}
FACTS = {
    name: {
        "interfaces": {"eth0": [values["node_address"] + "/24"]},
        "address_of_default_route": values["node_address"],
    }
    for name, values in HOSTS.items()
}


def run(records, check=False, **given):
    return ansible_modules.carry_out(
        mxcluster_cluster_plan, check, records_dir=str(records), **given
    )


def test_the_ssh_files_are_planned_for_the_nodes_of_the_cluster_files(tmp_path):
    planned = run(
        tmp_path, command="files", inventory=INVENTORY, forks="5", facts=FACTS, cwd=str(tmp_path)
    )
    assert not planned.get("failed") and not planned["changed"], planned
    assert set(planned["files"]) == {"hosts", "groups", "data_sharding"}
    assert {name: node["address"] for name, node in planned["nodes"].items()} == {
        name: values["node_address"] for name, values in HOSTS.items()
    }
    variables = {name: {} for name in HOSTS}
    ssh = run(
        tmp_path,
        check=True,
        command="ssh",
        nodes=planned["nodes"],
        variables=variables,
        key_file="~/.ssh/id",
    )
    assert set(ssh["blocks"]) == {"authorized_keys", "known_hosts", "config"}
    assert ssh["gone"] == ssh["still_hold"] == []


def test_an_inventory_that_cannot_work_is_refused(tmp_path):
    twice = dict(INVENTORY, hosts={"one": HOSTS["one"], "two": HOSTS["one"]})
    told = run(tmp_path, command="files", inventory=twice, forks=5, facts=FACTS, cwd=str(tmp_path))
    assert told["failed"] and "10.0.0.1" in told["msg"]
