import time

import pytest

from mxcluster.errors import BadInput
from mxcluster.job.plan import members, nodes
from mxcluster.job.plan.site import Site
from mxcluster.model.inventory import Inventory
from mxcluster.model.job_knobs import Options
from mxcluster.model.node_record import MachineFacts
from tests.inventories.cases import changed, load, plan_of, records_of

DRIVER = {"installed": "470.82.01", "loaded": "470.82.01", "nouveau": False}
GROUPS = {"scheduler": ["a"], "servers": ["a", "b"], "workers": ["b", "c"]}
# c has no record.
RECORDS = {
    host: MachineFacts(interfaces={"eth0": [address + "/24"]}, address_of_default_route=address)
    for host, address in (("a", "10.0.0.1"), ("b", "10.0.0.2"), ("d", "10.0.0.4"))
}


def site_of(hosts=None, groups=GROUPS, lines=None):
    inventory = Inventory(groups=groups, hosts=hosts or {}, forks=9)
    return Site(Options(), inventory, "abcd", RECORDS, {"hosts": lines})


def test_servers_and_workers_per_host():
    site = site_of({"a": {"servers_per_host": "2"}, "b": {"workers_per_host": 3}})
    assert members.servers(site, 0) == ["a", "a", "b"]
    assert members.servers(site, 1) == ["a"]
    assert members.workers(site) == ["b", "b", "b", "c"]


def test_a_hosts_file_selects_orders_and_repeats_workers():
    lines = "10.0.0.4\n10.0.0.1\n10.0.0.4\n"
    site = site_of({"a": {"workers_per_host": 5}}, {"workers": ["a", "b", "d"]}, lines)
    assert members.workers(site) == ["d", "a", "d"]


def test_a_node_without_a_record_matters_only_if_its_address_is_used():
    assert members.workers(site_of(lines="10.0.0.2\n")) == ["b"]
    with pytest.raises(BadInput, match="hosts line 1: 10.0.0.3 (.|\n)*c: the node has no record"):
        members.workers(site_of(lines="10.0.0.3\n"))


def test_different_builds_of_one_version_are_refused():
    """Nodes with GPUs have another library; each kind of node must have one build."""
    records = {
        "a": {"fingerprints": {"libmxnet.so": "a" * 64}},
        "b": {"fingerprints": {"libmxnet.so": "a" * 64}},
        "old": {},
        "gpu": {"fingerprints": {"libmxnet.so": "c" * 64}, "target": "cu92"},
    }
    nodes.check_versions(records, records_of(records))
    records["b"] = {"fingerprints": {"libmxnet.so": "b" * 64}}
    with pytest.raises(
        BadInput,
        match="different builds of libmxnet.so .sha256 aaaaaaaaaaaa: a; bbbbbbbbbbbb: b.: remove",
    ):
        nodes.check_versions(records, records_of(records))


def test_different_versions_are_refused():
    records = records_of(
        {"a": {"mxnet": "1.9.1"}, "b": {"mxnet": "1.9.1"}, "c": {"mxnet": "1.5.1"}}
    )
    nodes.check_versions(["a", "b"], records)
    with pytest.raises(BadInput, match="1.9.1: a, b; 1.5.1: c"):
        nodes.check_versions(["a", "b", "c"], records)
    other_pythons = {
        "a": {"mxnet": "1.9.1", "numpy": "1.19.5", "python_version": "3.6.8"},
        "b": {"mxnet": "1.9.1", "numpy": "2.2.6", "python_version": "3.13.2"},
    }
    nodes.check_versions(["a", "b"], records_of(other_pythons))


def test_a_node_whose_driver_needs_a_restart_is_refused():
    records = {host: {"python": "/p", "bus": 1, "driver": DRIVER} for host in "abc"}
    nodes.check_provisioned("abc", records_of(records))
    records["b"]["driver"] = dict(DRIVER, loaded="470.57.02")
    records["c"]["driver"] = dict(DRIVER, loaded=None, nouveau=True)
    nodes.check_provisioned("a", records_of(records))
    with pytest.raises(BadInput) as refusal:
        nodes.check_provisioned("abc", records_of(records))
    message = str(refusal.value)
    assert (
        "b: driver 470.82.01 is installed, but 470.57.02 is loaded, and only a restart" in message
    )
    assert (
        "but nouveau is loaded, and only a restart can change this: restart c, then run" in message
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, files, words",
    [
        (
            {"num_workers": 300, "num_servers": 1, "round_robin": ["node1"]},
            {},
            "node1: the job has 300 workers on this host, and a host runs at most 256",
        ),
        ({}, {"hosts": "127.0.0.12\n" * 257}, "node2: the job has 257 workers on this host"),
        ({}, {"hosts": "127.0.0.12\n" * 300000}, "the job has 300000 workers, and mxcluster"),
    ],
    ids=["workers", "hosts file", "long file"],
)
def test_a_job_of_too_many_processes_is_refused_in_seconds(options, files, words):
    """The host variables have a bound, and round_robin and a hosts file go around it."""
    case = changed(load("good/local"), {"options": options, "files": files})
    began = time.thread_time()
    with pytest.raises(BadInput, match=words):
        plan_of(case)
    assert time.thread_time() - began < 10, "seconds of this thread, not of a busy machine"
