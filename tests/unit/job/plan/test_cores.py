"""cpus: the CPUs of the servers and workers of a host."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job.plan import look, submission, table
from mxcluster.model.node_record import Core
from tests.inventories.cases import changed, inputs_of, load, plan_of
from tests.unit.job.plan.test_submission import facts, submitted

LOCAL = load("good/local")
# Two NUMA nodes of four cores, each with two hyper-threads: 0 and 8, 1 and 9 and so on.
CORES = [{"cpus": [number, number + 8], "memory": number // 4} for number in range(8)]
ONE = [{"cpus": [number], "memory": 0} for number in range(6)]


def planned(cores, servers=0, workers=1, wanted="auto", of_host=None, **record):
    """Return the plan of a job on node1, whose record has `cores`."""
    case = {
        "groups": {"servers": ["node1"] if servers else ["node2"], "workers": ["node1"]},
        "hosts": {
            "node1": {"workers_per_host": workers, "servers_per_host": servers or 1},
            "node2": {"cpus": ""},
        },
        "records": {"node1": dict(record, cores=cores)},
        "options": {"kv": "dist_sync", "cpus": wanted},
    }
    for host in ("node1", "node2"):
        case["records"].setdefault(host, {}).setdefault("cores", cores)
    if of_host is not None:
        case["hosts"]["node1"]["cpus"] = of_host
    return plan_of(changed(LOCAL, case))


def parts(plan):
    return {one.name: one.cpus for one in plan.processes if one.cpus and one.host == "node1"}


def test_each_worker_stays_in_a_numa_node_and_has_whole_cores():
    plan = planned(CORES, workers=2)
    first, second = [0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]
    assert parts(plan) == {"worker-0": first, "worker-1": second}
    for one in plan.of_role("worker"):
        assert one.env["MXCLUSTER_CPUS"] == ",".join(map(str, one.cpus))
        assert one.env["OMP_NUM_THREADS"] == "4", "one thread for each core"
        assert one.env["OMP_WAIT_POLICY"] == "PASSIVE", "another program may need a core"
    assert plan.of_role("scheduler")[0].cpus == []
    lines = [
        line.split() for line in table(plan).splitlines() if line.startswith(("role", "worker"))
    ]
    assert [line[6] for line in lines] == ["CPUs", "0-3,8-11", "4-7,12-15"], lines


@pytest.mark.parametrize(
    "cores, servers, workers, expected",
    [
        # Three workers do not divide among two NUMA nodes.
        (CORES, 0, 3, [[0, 8, 1, 9, 2, 10], [3, 11, 4, 12, 5, 13], [6, 14, 7, 15]]),
        # A server gets a quarter of a worker's part, and at least one core.
        (ONE, 1, 1, [[0], [1, 2, 3, 4, 5]]),
        (ONE, 2, 2, [[0], [1], [2, 3], [4, 5]]),
        # With fewer cores than processes, a hyper-thread counts as a core.
        (CORES[:2], 1, 2, [[0], [8, 1], [9]]),
        # The servers are spread over the NUMA nodes, too.
        (CORES, 2, 2, [[0, 8], [4, 12], [1, 9, 2, 10, 3, 11], [5, 13, 6, 14, 7, 15]]),
    ],
)
def test_the_parts_of_servers_and_workers(cores, servers, workers, expected):
    found = list(parts(planned(cores, servers, workers)).values())
    assert found == expected
    taken = [cpu for part in found for cpu in part]
    assert len(taken) == len(set(taken)), "no CPU belongs to two processes"


def test_the_host_variable_restricts_and_the_knob_replaces_it():
    assert parts(planned(ONE, wanted="", of_host="auto"))["worker-0"] == [0, 1, 2, 3, 4, 5]
    assert parts(planned(ONE, wanted="", of_host="2-3,5"))["worker-0"] == [2, 3, 5]
    assert parts(planned(CORES, wanted="0-2,8"))["worker-0"] == [0, 8, 1, 2]
    assert parts(planned(ONE, wanted="auto", of_host="2-3"))["worker-0"] == [2, 3], "as for gpus"
    assert parts(planned(ONE, wanted="4", of_host="2-3"))["worker-0"] == [4]
    assert parts(planned(ONE, wanted="", of_host="")) == {}
    without = plan_of(LOCAL)
    assert not any(one.cpus or "OMP_NUM_THREADS" in one.env for one in without.processes)
    assert "CPUs" not in table(without)


def test_the_user_sets_another_number_of_threads():
    case = changed(LOCAL, {"options": {"cpus": "auto", "env": {"OMP_NUM_THREADS": "1"}}})
    records = {host: {"cores": ONE} for host in LOCAL["records"]}
    plan = plan_of(changed(case, {"records": records}))
    assert {one.env["OMP_NUM_THREADS"] for one in plan.processes} == {"1"}
    inputs = inputs_of(changed(case, {"records": records}))
    request = look.look(plan, "node1", inputs.records["node1"], inputs_variables(), "")
    assert request.cpus == [0, 1, 2, 3, 4, 5]


def inputs_variables():
    from mxcluster.model.host_variables import HostVariables

    return HostVariables()


@pytest.mark.parametrize(
    "change, words",
    [
        ({"cores": None}, "node1: cpus=auto, but the node record has no facts about cores: run pr"),
        ({"workers": 7}, "node1: cpus=auto gives only 6 CPUs to 7 servers and workers: lower work"),
        ({"wanted": "4-7"}, "node1: cpus=4-7, but the node gives the CPUs 0-5 to jobs: name CPUs"),
        ({"cpu_limit": 2.5}, "node1: cpus=auto, but a quota or the batch system gives 2.5 of the"),
        ({"wanted": "all"}, "cpus='all' is refused: it must be auto, '' .no CPUs of its own. or"),
        ({"wanted": "0,0"}, "cpus='0,0' is refused"),
        ({"wanted": "3-1"}, "cpus='3-1' is refused"),
        ({"wanted": "0-9999999999"}, "cpus='0-9999999999' is refused"),
        ({"of_host": "-1", "wanted": ""}, "node1: cpus='-1' is refused"),
    ],
)
def test_cpus_that_a_node_does_not_have_are_refused(change, words):
    with pytest.raises(BadInput, match=words):
        planned(**dict({"cores": ONE}, **change))


def test_a_job_of_slurm_takes_the_cpus_of_its_job_and_grid_engine_is_refused():
    given = submitted(num_nodes=1, cpus="auto")  # the controller has made a plan with such nodes
    cores = [Core(cpus=[4]), Core(cpus=[5]), Core(cpus=[6])]
    plan = submission.complete(*given, ["n1"], {"n1": facts(1).replaced(cores=cores)})
    assert [one.cpus for one in plan.processes] == [[], [4], [5, 6]]
    unbound = facts(1).replaced(cores=cores, cpu_limit=2.0)
    with pytest.raises(BadInput, match="gives 2 of the 3 CPUs .* Slurm bind jobs"):
        submission.complete(*given, ["n1"], {"n1": unbound})
    with pytest.raises(BadInput, match="cpus=auto is refused with launcher=sge, because Grid"):
        submitted(num_nodes=1, cpus="auto", launcher="sge", parallel_environment="mpi")


@pytest.mark.parametrize(
    "limit, workers, threads", [(None, 1, None), (0.6, 1, "1"), (2.5, 1, "3"), (3, 2, "2")]
)
def test_a_quota_limits_the_threads_of_each_process(limit, workers, threads):
    """With a thread for each CPU, a process would stop for most of each period of the quota."""
    plan = planned(CORES, servers=1, workers=workers, wanted="", cpu_limit=limit)
    for one in plan.of_role("worker"):
        assert one.env.get("OMP_NUM_THREADS") == threads and one.cpus == []
    (server,) = [one for one in plan.of_role("server") if one.host == "node1"]
    assert server.env.get("OMP_NUM_THREADS") == (threads and "1")
    assert server.env.get("OMP_WAIT_POLICY") == (threads and "PASSIVE")
    assert "OMP_NUM_THREADS" not in plan.of_role("scheduler")[0].env


def test_the_user_decides_about_threads_under_a_quota():
    case = {"env_worker": {"OMP_NUM_THREADS": "7"}, "kv": "dist_sync"}
    host = {"node1": {"cpu_limit": 0.6}}
    plan = plan_of(changed(LOCAL, {"records": host, "options": case}))
    assert plan.of_role("worker")[0].env["OMP_NUM_THREADS"] == "7"
