"""The first port of a job."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job.plan import ports
from tests.inventories.cases import changed, load, plan_of

LOCAL = load("good/local")


def plan(held=None, **given):
    return plan_of(changed(LOCAL, {"options": given}), held=held)


def held(host, *numbers):
    return {host: {"ports": {str(number): "the job other" for number in numbers}, "gpus": {}}}


def test_auto_takes_the_first_run_of_ports_that_is_free_on_all_nodes():
    assert plan().root.port == ports.FIRST == 9091
    first = plan().processes
    most = max(process.port for process in first)
    assert plan(held("node3", 9091, 9092)).root.port == 9093
    assert plan(held(first[0].host, most)).root.port == most + 1
    moved = plan(held("node3", 9091))
    assert {process.env["DMLC_PS_ROOT_PORT"] for process in moved.processes} == {
        str(moved.root.port)
    }
    assert [process.port - moved.root.port for process in moved.processes] == [
        process.port - 9091 for process in first
    ]


def test_a_held_port_on_a_node_that_does_not_need_it_is_ignored():
    assert plan(held("node3", 9092)).root.port == 9091


def test_a_new_plan_names_each_busy_port_and_its_holder():
    processes = plan().processes
    busy = processes[-1]
    assert ports.busy(processes, {}) == []
    assert ports.busy(processes, held(busy.host, busy.port, 9)) == [
        "planned again: port %d on %s is in use by the job other" % (busy.port, busy.host)
    ]
    gpu = busy.replaced(gpus=[3])
    assert ports.busy([gpu], {busy.host: {"ports": {}, "gpus": {"3": "python"}}}) == [
        "planned again: GPU 3 on %s is in use by python" % busy.host
    ]


def test_a_requested_port_that_is_held_is_refused_with_its_holder():
    with pytest.raises(BadInput) as refusal:
        plan(held("node3", 9300), root_port="9300")
    assert str(refusal.value).startswith(
        "node3: port 9300 on 127.0.0.13 is in use by the job other\nroot_port=9300 is refused"
    )
    assert plan(held("node3", 9091), root_port="9300").root.port == 9300


def test_a_plan_without_a_free_port_is_refused():
    with pytest.raises(BadInput, match="no range of free ports"):
        plan(held("node3", *range(9091, 65100)))


def test_without_a_scheduler_no_port_is_needed():
    assert plan(held("node1", 9091), kv="local").root is None


def test_a_detached_job_has_no_lease():
    assert plan(detach="true", lease="30").lease == 0 and plan(lease="30").lease == 30.0
