"""Processes on a list of hosts in turn, as launch.py places them."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job.plan import round_robin
from mxcluster.job.plan.site import Site
from mxcluster.model.inventory import Inventory
from mxcluster.model.job_knobs import Options
from mxcluster.model.node_record import MachineFacts

GROUPS = {"scheduler": ["a"], "servers": ["a"], "workers": ["b", "c"]}
HOSTS = {"b": {"ansible_host": "b.example.org"}, "c": {"ansible_host": "192.0.2.3"}}
RECORDS = {
    host: MachineFacts(
        interfaces={
            "lo": ["127.0.0.1/8"],
            "eth0": ["10.0.0.%d/24" % number],
            "eth1": ["192.168.0.%d/24" % number],
        },
        address_of_default_route="10.0.0.%d" % number,
    )
    for number, host in enumerate("abc", 1)
}


def place(entries, servers, workers):
    options = Options(round_robin=entries, num_servers=servers, num_workers=workers)
    inventory = Inventory(groups=GROUPS, hosts=HOSTS, forks=9)
    return round_robin.place(Site(options, inventory, "abc", RECORDS, {}), options)


def test_a_similar_name_and_all_among_others_have_a_hint():
    with pytest.raises(BadInput, match="round_robin: ALL is no host .*did you mean 'all'"):
        place(["ALL"], 1, 1)
    with pytest.raises(BadInput, match="all stands for all hosts: leave the other names out"):
        place(["a", "all"], 1, 1)


def test_servers_come_first_and_then_workers():
    assert place(["a", "b", "c"], 2, 4) == (["a", "b"], ["c", "a", "b", "c"])
    assert place(["c"], 1, 2) == (["c"], ["c", "c"])
    assert place(["all"], 1, 3) == (["a"], ["b", "c", "a"])


def test_hosts_by_name_and_by_each_address():
    assert place(["10.0.0.2", "b.example.org", "192.0.2.3", "192.168.0.1"], 1, 3) == (
        ["b"],
        ["b", "c", "a"],
    )
