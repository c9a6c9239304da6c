"""make_plan and for_node as a whole; tests/inventories has the single rules."""

import json

import pytest

from mxcluster import schemes
from mxcluster.errors import BadInput
from mxcluster.job.plan import for_node, processes
from mxcluster.model.plan import NodePlan
from tests.inventories.cases import changed, load, plan_of
from tests.plans import process_of

LOCAL = load("good/local")
GPUS = load("good/gpus")


def local(**of):
    return plan_of(changed(LOCAL, {"options": of}))


def workers(plan):
    return [process for process in plan.processes if process.role == "worker"]


def test_ports_are_unique_per_address():
    plan = plan_of(
        changed(
            GPUS,
            {
                "groups": {"scheduler": ["fast1"], "servers": ["slow1", "fast1"]},
                "hosts": {"fast1": {"servers_per_host": 3}},
            },
        )
    )
    places = [(process.address, process.port) for process in plan.processes]
    assert len(set(places)) == len(places)
    assert places[0] == ("10.1.0.2", 9091) and plan.root.port == 9091


@pytest.mark.parametrize("kv", schemes.NAMES)
def test_the_number_of_processes_for_every_kv(kv):
    plan = local(kv=kv)
    assert plan.kv == kv and plan.staleness == (3 if kv == "dist_ssync" else None)
    assert len(plan.processes) == (9 if kv == "dist_gsync" else 7 if kv.startswith("dist") else 1)
    for process in plan.processes:
        assert ("MXCLUSTER_STALENESS" in process.env) == (kv == "dist_ssync")


def test_num_workers_and_num_servers_take_the_first_ones():
    plan = local(num_workers="3", num_servers="1")
    assert (
        plan.workers == 3 and plan.servers == 2 and list(plan.nodes) == ["node1", "node2", "node3"]
    )
    assert plan.groups == [[0, 1], [2]] and plan.group_labels == ["a", "b"]
    assert [share[1] for share in plan.shares] == [1 / 3, 2 / 3, 1.0]
    assert (
        workers(plan)[0].env["DMLC_NUM_WORKER"] == "3"
        and workers(plan)[0].env["MXCLUSTER_GROUPS"] == "0,0,1"
    )


def test_nodes_outside_the_job_are_not_checked():
    """Such a node may lack a record or have another node's address, and needs no fork."""
    case = changed(
        LOCAL,
        {
            "options": {"num_workers": "2"},
            "records": {"node3": None},
            "forks": 2,
            "hosts": {"node4": {"node_address": "127.0.0.11", "worker_share": 7}},
        },
    )
    assert list(plan_of(case).nodes) == ["node1", "node2"]


def test_all_nodes_without_a_record_are_named():
    with pytest.raises(BadInput) as refusal:
        plan_of(changed(LOCAL, {"records": {"node2": None, "node4": None}}))
    assert str(refusal.value).count("run provision.yml without --limit") == 2


def test_a_data_sharding_file_takes_precedence_over_weights():
    text = "0 0.1\n0.1 0.2\n0.2 0.3\n0.3 0.4\n0.4 1\n"
    assert plan_of(changed(GPUS, {"files": {"data_sharding": text}})).shares[4] == (0.4, 1.0)


def test_unlabelled_weights_may_differ_in_an_asynchronous_kv():
    unlabelled = {host: {"worker_group": None} for host in ("fast1", "fast2", "slow1")}
    plan = plan_of(changed(GPUS, {"hosts": unlabelled, "options": {"kv": "dist_async"}}))
    assert plan.shares[4] == (0.8888888888888888, 1.0)
    with pytest.raises(BadInput, match="worker_share differs inside the group all"):
        plan_of(changed(GPUS, {"hosts": unlabelled}))


def test_files_describe_all_workers_even_if_fewer_take_part():
    case = changed(
        LOCAL,
        {
            "options": {"num_workers": "2", "data_allocator": "1"},
            "files": {
                "groups": "127.0.0.12 127.0.0.13\n127.0.0.11 127.0.0.14\n",
                "data_sharding": "0 0.3\n0.3 0.4\n0.4 0.7\n0.7 1\n",
            },
        },
    )
    plan = plan_of(case)
    assert plan.groups == [[0], [1]] and plan.shares == [(0.0, 0.75), (0.75, 1.0)]
    assert plan.files["groups"] == "127.0.0.11\n127.0.0.12\n"


def test_dmlc_interface_sets_every_address():
    plan = plan_of(changed(GPUS, {"options": {"dmlc_interface": "eth0"}}))
    assert plan.root.address == "192.168.0.1"
    assert plan.files["hosts"].split() == ["192.168.0.2"] * 2 + ["192.168.0.3"] * 2 + [
        "192.168.0.4"
    ]
    for process in plan.processes:
        assert process.env["DMLC_INTERFACE"] == "eth0"
        assert process.env["DMLC_NODE_HOST"] == process.address == plan.nodes[process.host].address


def test_a_script_needs_neither_a_known_network_nor_data():
    plan = local(script="x.py", network="their own", num_examples="3")
    assert workers(plan)[0].command[4:] == [
        "script",
        "/state/jobs/node1/job-1/files/worker-0/x.py",
        "--",
    ]


def test_each_server_has_a_process_for_each_group():
    """A process merges when its group has pushed; DMLC_NUM_WORKER elsewhere counts all workers."""
    plan = local(num_workers="3")
    servers = [process for process in plan.processes if process.role == "server"]
    assert [(one.host, one.group, one.env["DMLC_NUM_WORKER"]) for one in servers] == [
        ("node1", 0, "2"),
        ("node1", 1, "1"),
        ("node2", 0, "2"),
        ("node2", 1, "1"),
    ]
    assert {one.env["DMLC_NUM_WORKER"] for one in plan.processes if one not in servers} == {"3"}
    # Rank 0 is the greatest address as text; equal addresses are ordered by port.
    assert {one.env["MXCLUSTER_SERVER_RANKS"] for one in plan.processes} == {"2,3,0,1"}
    assert {one.env["DMLC_NUM_SERVER"] for one in plan.processes} == {"4"}
    alone = local(num_workers="2")
    assert alone.servers == 2 and not any(
        "MXCLUSTER_SERVER_RANKS" in one.env for one in alone.processes
    )


@pytest.mark.parametrize(
    "places, expected",
    [
        ([("10.0.0.1", 9), ("10.0.0.1", 10)], [0, 1]),
        ([("10.0.0.1", 10), ("10.0.0.2", 9), ("10.0.0.1", 9), ("10.0.0.2", 10)], [3, 0, 2, 1]),
    ],
)
def test_ranks_are_those_of_ps_lite(places, expected):
    assert (
        processes.ranks([process_of(address=address, port=port) for address, port in places])
        == expected
    )


def test_the_knobs_for_late_updates_reach_the_servers():
    names = ("MXCLUSTER_GSYNC_COMPENSATION", "MXCLUSTER_GSYNC_MAX_Y")

    def found(**given):
        plan = local(**given)
        return {
            tuple(process.env.get(name) for name in names)
            for process in plan.processes
            if process.role == "server"
        }

    assert found() == {("0.0", "0")}
    assert found(gsync_compensation="1e-5", gsync_max_y="7") == {("1e-05", "7")}
    assert found(kv="dist_sync") == {(None, None)}


def test_for_node_splits_the_plan_by_host():
    plan = local()
    parts = {host: for_node(plan, host) for host in plan.nodes}
    assert [process.name for process in parts["node1"].processes] == [
        "scheduler-0",
        "server-0",
        "server-1",
        "worker-0",
    ]
    together = [process for part in parts.values() for process in part.processes]
    assert sorted(together, key=str) == sorted(plan.processes, key=str)
    for host, part in parts.items():
        assert part.host == host and part.nodes == {host: plan.nodes[host]}
        assert part.files == plan.files and part.lease == 60.0 and part.shares == plan.shares
        assert NodePlan.decode(json.loads(json.dumps(part.encode()))) == part
