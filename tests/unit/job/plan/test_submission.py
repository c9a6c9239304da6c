"""The submission of a batch job, and its plan on the nodes that the batch system gives."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.job.plan import Inputs, for_node, submission
from mxcluster.model.inventory import Inventory
from mxcluster.model.node_record import NodeFacts, NodeRecord
from mxcluster.model.plan import Root

RECORD = NodeRecord(
    host="login",
    schema=2,
    python="/shared/env/bin/python",
    job_dir="/shared/jobs",
    data_dir="/shared/data",
    target="cpu",
    hostname="login",
)


def facts(number, **more):
    """Return the facts of a node, with the fields `more`."""
    found = {
        "address_of_default_route": "10.0.0.%d" % number,
        "interfaces": {"lo": ["127.0.0.1/8"], "eth0": ["10.0.0.%d/24" % number]},
        "hostname": "node%d" % number,
        "gpus": 0,
        "python_version": "3.6.8",
        "mxnet": "1.9.1",
        "numpy": "1.19.5",
        "model_zoo": [],
        "fingerprints": {"libmxnet.so": "a" * 64},
    }
    return NodeFacts.decode(dict(found, **more))


def submitted(variables=None, groups=None, record=RECORD, **knobs):
    inventory = Inventory(
        groups=groups or dict.fromkeys(("scheduler", "servers", "workers"), ["login"]),
        hosts=dict({"login": {}}, **(variables or {})),
    )
    given = options.cast(dict({"launcher": "slurm", "num_nodes": 3}, **knobs))
    return submission.submission(Inputs(given, inventory, {"login": record}, "job-1"))


def completed(submitted, count=3, **more):
    hosts = ["n%d" % number for number in range(1, count + 1)]
    found = {host: facts(int(host[1:])) for host in hosts}
    return submission.complete(*submitted, hosts, found, **more)


def test_a_submission_has_the_submit_host_and_no_process():
    plan, request = submitted(queue="long", time_limit="8:00:00")
    assert list(plan.nodes) == ["login"] and plan.processes == []
    assert plan.nodes["login"].job_dir == "/shared/jobs/job-1"
    assert "no systemd unit, no root and no firewall rule" in submission.table(plan, request)
    assert "3 nodes, queue long, time limit 8:00:00" in submission.table(plan, request)
    assert for_node(plan, "login").batch.nodes == 3


def test_the_plan_uses_all_nodes_and_the_paths_of_the_submit_host():
    plan = completed(submitted())
    assert [process.host for process in plan.processes] == (
        ["n1"] + ["n1", "n2", "n3"] + ["n1", "n2", "n3"]
    )
    assert plan.root == Root(address="10.0.0.1", port=9091)
    assert plan.nodes["n2"].python == RECORD.python
    assert plan.nodes["n2"].job_dir == "/shared/jobs/job-1/nodes/n2/job-1"
    assert plan.ports_open == ["n1", "n2", "n3"], "no root closes the ports"


def test_variables_of_the_submit_host_and_of_nodes_of_the_inventory_count():
    variables = {"login": {"workers_per_host": 2}, "n3": {"worker_group": "far"}}
    variables["n1"] = variables["n2"] = {"worker_group": "near"}
    plan = completed(submitted(variables, kv="dist_gsync", num_servers=1))
    assert plan.workers == 6 and plan.group_labels == ["near", "far"]


def granted(submitted, *numbers, **more):
    """Return the plan on one node with four GPUs, of which the batch system gives `numbers`."""
    found = facts(1, gpus=4, granted=list(numbers), **more)
    return submission.complete(*submitted, ["n1"], {"n1": found})


def test_a_job_takes_the_gpus_that_the_batch_system_gives():
    """Other GPUs may belong to another job, also while they are idle."""
    record = RECORD.replaced(target="cu92", bus=8)
    plan = submitted(record=record, num_nodes=1)
    of_worker = granted(plan, 1, 3).processes[-1]
    assert of_worker.gpus == [1, 3], of_worker
    assert granted(plan).processes[-1].gpus == []
    of_all = submission.complete(*plan, ["n1"], {"n1": facts(1, gpus=4, granted=None)})
    assert of_all.processes[-1].gpus == [0, 1, 2, 3], "it says nothing about GPUs"
    with pytest.raises(BadInput, match="n1: gpus=0, but the batch system gives the GPUs 1,3 to"):
        granted(submitted(record=record, num_nodes=1, gpus="0"), 1, 3)


def test_a_node_whose_driver_needs_a_restart_is_refused():
    """nvidia-smi shows no GPU there, and the job would train on the CPU."""
    driver = {"installed": "470.82.01", "loaded": "470.57.02", "nouveau": False}
    waits = {"n1": facts(1, cards=1, driver=driver)}
    record = RECORD.replaced(target="cu92")
    with pytest.raises(BadInput, match="n1: driver 470.82.01 is installed, but 470.57.02 is load"):
        submission.complete(*submitted(record=record, num_nodes=1), ["n1"], waits)
    healthy = dict(driver, loaded="470.82.01")
    for target, found in [
        ("cpu", waits["n1"]),
        ("cu92", facts(1, cards=0, driver=driver)),
        ("cu92", facts(1, cards=1, driver=healthy)),
    ]:
        plan = submitted(record=RECORD.replaced(target=target), num_nodes=1)
        assert submission.complete(*plan, ["n1"], {"n1": found}).workers == 1


def test_jobs_that_start_together_search_different_ports():
    ports = {completed(submitted(), number=number).root.port for number in ("7", "8", "9")}
    assert len(ports) == 3 and max(ports) - min(ports) == 2 * submission.SPREAD


@pytest.mark.parametrize(
    "change,words",
    [
        (
            {"submit_host": "lgoin"},
            "submit_host=lgoin is .* inventory .did you mean 'login'.*: name one of login",
        ),
        (
            {"groups": {"scheduler": [], "servers": [], "workers": ["login"]}},
            "launcher=slurm needs a submit host",
        ),
    ],
)
def test_an_unknown_submit_host_is_refused(change, words):
    with pytest.raises(BadInput, match=words):
        submitted(**change)


def test_a_submit_host_that_is_not_provisioned_is_refused():
    with pytest.raises(BadInput, match="no node record: run provision.yml"):
        groups = dict.fromkeys(("scheduler", "servers", "workers"), ["new"])
        submitted(groups=groups)


@pytest.mark.parametrize(
    "knobs,words",
    [
        ({"launcher": "sge"}, "launcher=sge needs parallel_environment: .*`qconf -spl`"),
        ({"without": "n1"}, "exclude nodes with engine_options"),
    ],
)
def test_knobs_that_a_batch_system_cannot_serve_are_refused(knobs, words):
    with pytest.raises(BadInput, match=words):
        submitted(**knobs)


@pytest.mark.parametrize(
    "variables, knobs, words",
    [
        ({}, {"num_servers": 50}, "num_servers=50, but the job has only 3 servers: .* num_nodes"),
        ({"login": {"gpus": "all of them"}}, {}, "^login: gpus='all of them'"),
        (
            {"n1": {"worker_group": "g", "node_address": "10.0.0.5", "dmlc_interface": "ib0"}},
            {"num_workers": 50, "num_nodes": 2},
            "num_workers=50, but the job has only 2 workers",
        ),
        ({"login": {"cluster_network": "10.0.0.0/30"}}, {}, "fewer addresses than num_nodes=3"),
        ({}, {"kv": "dist_sync", "bigarray_bound": 1000, "num_nodes": 100}, "bigarray_bound=1000"),
        ({"n1": {"slowdown": 2}}, {"network": "nonsense"}, "network='nonsense' is unknown"),
    ],
)
def test_what_shows_without_the_nodes_is_refused_before_the_submission(variables, knobs, words):
    with pytest.raises(BadInput, match=words):
        submitted(variables, **knobs)


@pytest.mark.parametrize(
    "variables, knobs",
    [
        ({}, {"gpus": "0,1,2"}),
        ({"login": {"gpu_speeds": [3, 1]}}, {}),
        ({"n1": {"workers_per_host": 8}}, {"num_workers": 9}),
    ],
)
def test_what_nodes_may_have_is_no_fault(variables, knobs):
    assert submitted(variables, **knobs)[0].processes == []
