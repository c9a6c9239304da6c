import time

import pytest

from mxcluster.errors import BadInput
from mxcluster.job.plan import members
from mxcluster.job.plan.addresses import Node
from mxcluster.model.host_variables import of_hosts
from tests.inventories.cases import changed, load, plan_of, records_of

DRIVER = {"installed": "470.82.01", "loaded": "470.82.01", "nouveau": False}
GROUPS = {"scheduler": ["a"], "servers": ["a", "b"], "workers": ["b", "c"]}


def find(host):
    if host == "c":
        raise BadInput("c: the node has no record")
    return Node(host, {"a": "10.0.0.1", "b": "10.0.0.2", "d": "10.0.0.4"}[host], "eth0")


def test_servers_and_workers_per_host():
    variables = of_hosts("abc", {"a": {"servers_per_host": "2"}, "b": {"workers_per_host": 3}})
    assert members.servers(GROUPS, variables, 0) == ["a", "a", "b"]
    assert members.servers(GROUPS, variables, 1) == ["a"]
    assert members.workers(GROUPS, variables, None, "hosts", find) == ["b", "b", "b", "c"]


def test_a_hosts_file_selects_orders_and_repeats_workers():
    groups = {"workers": ["a", "b", "d"]}
    variables = of_hosts(["a", "b", "d"], {"a": {"workers_per_host": 5}})
    assert members.workers(groups, variables, "10.0.0.4\n10.0.0.1\n10.0.0.4\n", "hosts", find) == [
        "d",
        "a",
        "d",
    ]


def test_a_node_without_a_record_matters_only_if_its_address_is_used():
    variables = of_hosts("abc", {})
    assert members.workers(GROUPS, variables, "10.0.0.2\n", "hosts", find) == ["b"]
    with pytest.raises(BadInput, match="hosts line 1: 10.0.0.3 (.|\n)*c: the node has no record"):
        members.workers(GROUPS, variables, "10.0.0.3\n", "hosts", find)


@pytest.mark.parametrize(
    "distributed, wanted, count",
    [(True, 0, 4), (True, 3, 3), (True, 4, 4), (False, 0, 1), (False, 2, 1)],
)
def test_number_of_workers(distributed, wanted, count):
    assert members.number_of_workers(distributed, wanted, 4) == count


def test_different_builds_of_one_version_are_refused():
    """Nodes with GPUs have another library; each kind of node must have one build."""
    records = {
        "a": {"fingerprints": {"libmxnet.so": "a" * 64}},
        "b": {"fingerprints": {"libmxnet.so": "a" * 64}},
        "old": {},
        "gpu": {"fingerprints": {"libmxnet.so": "c" * 64}, "target": "cu92"},
    }
    members.check_versions(records, records_of(records))
    records["b"] = {"fingerprints": {"libmxnet.so": "b" * 64}}
    with pytest.raises(
        BadInput,
        match="different builds of libmxnet.so .sha256 aaaaaaaaaaaa: a; bbbbbbbbbbbb: b.: remove",
    ):
        members.check_versions(records, records_of(records))


def test_different_versions_are_refused():
    records = records_of(
        {"a": {"mxnet": "1.9.1"}, "b": {"mxnet": "1.9.1"}, "c": {"mxnet": "1.5.1"}}
    )
    members.check_versions(["a", "b"], records)
    with pytest.raises(BadInput, match="1.9.1: a, b; 1.5.1: c"):
        members.check_versions(["a", "b", "c"], records)
    other_pythons = {
        "a": {"mxnet": "1.9.1", "numpy": "1.19.5", "python_version": "3.6.8"},
        "b": {"mxnet": "1.9.1", "numpy": "2.2.6", "python_version": "3.13.2"},
    }
    members.check_versions(["a", "b"], records_of(other_pythons))


def test_a_node_whose_driver_needs_a_restart_is_refused():
    records = {host: {"python": "/p", "bus": 1, "driver": DRIVER} for host in "abc"}
    members.check_provisioned("abc", records_of(records))
    records["b"]["driver"] = dict(DRIVER, loaded="470.57.02")
    records["c"]["driver"] = dict(DRIVER, loaded=None, nouveau=True)
    members.check_provisioned("a", records_of(records))
    with pytest.raises(BadInput) as refusal:
        members.check_provisioned("abc", records_of(records))
    said = str(refusal.value)
    assert "b: driver 470.82.01 is installed, but 470.57.02 is loaded, and only a restart" in said
    assert "but nouveau is loaded, and only a restart can change this: restart c, then run" in said


@pytest.mark.parametrize(
    "options, files, words",
    [
        (
            {"num_workers": 300, "num_servers": 1, "round_robin": ["node1"]},
            {},
            "node1: the job has 300 workers on this host, and a host runs at most 256",
        ),
        (
            {"num_workers": 1, "num_servers": 300, "round_robin": ["node1"]},
            {},
            "node1: the job has 300 servers on this host, and a host runs at most 256",
        ),
        ({}, {"hosts": "127.0.0.12\n" * 257}, "node2: the job has 257 workers on this host"),
        (
            {"num_workers": 99999999, "num_servers": 1, "round_robin": ["all"]},
            {},
            "num_workers=99999999 is refused: it must be a whole number from 0 to 4096",
        ),
        ({}, {"hosts": "127.0.0.12\n" * 300000}, "the job has 300000 workers, and mxcluster"),
    ],
    ids=["workers", "servers", "hosts file", "number", "long file"],
)
def test_a_job_of_too_many_processes_is_refused_in_seconds(options, files, words):
    """The host variables have a bound, and round_robin and a hosts file go around it."""
    case = changed(load("good/local"), {"options": options, "files": files})
    began = time.monotonic()
    with pytest.raises(BadInput, match=words):
        plan_of(case)
    assert time.monotonic() - began < 10


def test_too_many_server_processes_are_refused():
    members.check_total(4096, "server processes")
    with pytest.raises(BadInput, match="has 4097 server processes, .* at most 4096: use fewer"):
        members.check_total(4097, "server processes")
