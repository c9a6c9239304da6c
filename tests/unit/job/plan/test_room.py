"""The ports and GPUs for which a job waits on a node."""

import pytest

from mxcluster.job.plan import room
from mxcluster.model.answers import Held
from mxcluster.model.node_requests import AllGpus, LookRequest
from tests.plans import plan_with, process_of


def plan(*gpus, **options):
    """Return the plan of a job with a worker for each list of GPUs on node1."""
    workers = [process_of(index=index, gpus=list(own)) for index, own in enumerate(gpus)]
    return plan_with(*workers, options=dict({"lease": 10.0}, **options))


def look(gpus=(), record=None):
    return LookRequest(
        address="10.0.0.1",
        ports=[9091, 9092],
        gpus=list(gpus),
        all_gpus=None if record is None else AllGpus(record=record, bus=record),
    )


def held(ports=(), gpus=()):
    return Held(
        ports={str(port): "the job a" for port in ports},
        gpus={str(gpu): "the job b" for gpu in gpus},
    )


def test_a_ticket_names_the_ports_and_gpus_that_the_job_may_take():
    assert room.ticket(plan([0], root_port=9091), look([0], 4), 5.0, 2.0).encode() == {
        "job": "job-1",
        "since": 5.0,
        "lease": 22.0,
        "address": "10.0.0.1",
        "ports": [9091, 9092],
        "gpus": [0, 1, 2, 3],
        "after": "",
        "reasons": [],
    }
    named = room.ticket(plan([1], gpus=[1]), look([1]), 5.0)
    assert (named.ports, named.gpus) == ([], [1]), "a job with root_port=auto takes any port"


@pytest.mark.parametrize(
    "gpus, record, busy, lacks",
    [
        ([[0, 1], [2, 3]], 4, [0, 1], False),
        ([[0, 1], [2, 3]], 4, [0, 1, 2], True),  # each of the two workers needs one
        ([[0, 1]], None, [1], True),  # the user has named both
        ([[0, 1]], None, [2], False),
        ([[]], 0, [], False),
    ],
)
def test_a_job_that_chooses_its_gpus_needs_one_for_each_worker(gpus, record, busy, lacks):
    there = look(sum(gpus, []), record)
    found = room.lacking(plan(*gpus), "node1", there, held(gpus=busy))
    named = ["node1: GPU %d is in use by the job b" % number for number in busy]
    assert found == (named if lacks else [])


def test_only_a_named_port_is_waited_for():
    busy = held(ports=[9092, 9999])
    assert room.lacking(plan([], root_port="auto"), "node1", look(), busy) == []
    assert room.lacking(plan([], root_port=9091), "node1", look(), busy) == [
        "node1: port 9092 on 10.0.0.1 is in use by the job a"
    ]
