"""The cause of a stall, from the observations of all nodes."""

import pytest

from mxcluster.job import stall_cause
from mxcluster.model.answers import BlockingWorker
from mxcluster.model.failures import Failure
from mxcluster.model.status import Keys, Pulse
from tests.plans import plan_with, process_of
from tests.unit import statuses

NOW = 1000.0


def part(name, host, group=None):
    return process_of(name.split("-")[0], int(name[-1]), host=host, group=group)


PROCESSES = [
    part("scheduler-0", "a"),
    part("server-0", "a"),
    part("worker-0", "a", 0),
    part("worker-1", "b", 0),
    part("worker-2", "b", 1),
]


def pulse(phase, pushes, time=NOW, keys=None):
    return Pulse(phase=phase, pushes=pushes, time=time, keys=keys and Keys.decode(keys))


def with_pulses(pulses):
    """Return the statuses of two nodes with these pulses, each in one of them."""
    found = sorted(pulses.items())
    empty = {"processes": []}
    return [statuses.status(empty).replaced(pulses=dict(found[half::2])) for half in range(2)]


def explained(kv, blamed, **pulses):
    """Return the failure after the first report of `blamed`.

    A pulse is worker_1=(phase, pushes, seconds without progress).
    """
    seen = {
        name.replace("_", "-"): pulse(phase, pushes, NOW - idle)
        for name, (phase, pushes, idle) in pulses.items()
    }
    first = next(one for one in PROCESSES if one.name == blamed)
    failure = Failure(
        host=first.host,
        role=first.role,
        index=first.index,
        name=blamed,
        kind="stall",
        reason="has made no progress",
        time=NOW,
        log=["its words"],
    )
    plan = plan_with(*PROCESSES, kv=kv, timeouts={"start": 60, "stall": 300})
    return stall_cause.explain(failure, plan, with_pulses(seen)).encode()


def test_the_worker_with_the_fewest_pushes_is_the_cause():
    found = explained(
        "dist_sync",
        "worker-0",
        worker_0=("training", 12, 301),
        worker_1=("training", 10, 299),
        worker_2=("training", 12, 300),
        server_0=("serving", 0, 1),
        scheduler_0=("connecting", 0, 900),
    )
    assert (found["name"], found["host"], found["log"]) == ("worker-1", "b", [])
    assert (
        "pushed 10 times, and the workers that wait for its next push have pushed up to 12 times"
        in found["reason"]
        and "299 s" in found["reason"]
    )


@pytest.mark.parametrize("kv", ["dist_sync", "dist_gsync"])
def test_a_worker_that_finished_early_is_the_cause(kv):
    others = {"worker_2": ("training", 90, 1)} if kv == "dist_gsync" else {}
    found = explained(
        kv, "worker-1", worker_0=("finished", 6, 400), worker_1=("training", 8, 301), **others
    )
    assert (
        found["name"] == "worker-0"
        and "6 pushes" in found["reason"]
        and "worker-1, after 8 pushes, waits" in found["reason"]
    )
    assert "unequal" in found["reason"]


@pytest.mark.parametrize(
    "together, found",
    [
        ([[0, 1, 2]], "worker-1"),
        ([[0, 1], [2]], "worker-1"),
        ([[0, 2], [1]], None),
        ([[0], [1], [2]], None),
        ([], None),
    ],
)
def test_a_finished_worker_with_fewer_pushes_is_found(together, found):
    pulses = {
        "worker-0": pulse("training", 8),
        "worker-1": pulse("finished", 6),
        "worker-2": pulse("training", 8),
        "server-0": pulse("serving", 0),
    }
    assert stall_cause.uneven(pulses, together) == found
    # Both compute the accuracy, or save.
    pulses["worker-0"] = pulses["worker-2"] = pulse("training", 6)
    assert stall_cause.uneven(pulses, together) is None
    pulses["worker-0"] = pulse("finished", 8)  # a worker may push without waiting
    assert stall_cause.uneven(pulses, together) is None


def training(name, most, **fewer):
    return pulse("training", 9, NOW - 4, {"most": most, "fewer": fewer})


@pytest.mark.parametrize(
    "first, second, found",
    [
        (training(0, 7), training(1, 8, b=6), "worker-1"),
        (
            training(0, 7, a=3),
            training(1, 8, a=3, b=6),
            "worker-1",
        ),
        (training(0, 7), training(1, 8), None),
        (training(0, 8, b=7), training(1, 8, b=7), None),
        (training(0, 8, b=7), training(1, 7), None),
        (training(0, 7), training(1, 8, b=6).replaced(keys=None), None),
    ],
)
def test_a_worker_that_skipped_a_key_is_found(first, second, found):
    assert stall_cause.uneven({"worker-0": first, "worker-1": second}, [[0, 1]]) == found
    assert stall_cause.uneven({"worker-0": first, "worker-1": second}, [[0], [1]]) is None


BLOCKING = BlockingWorker(name="worker-1", time=NOW)


def test_the_reason_names_the_skipped_key():
    seen = with_pulses({"worker-0": training(0, 7), "worker-1": training(1, 8, b=6)})
    failure = stall_cause.failure(plan_with(*PROCESSES), "b", BLOCKING)
    message = stall_cause.explain(failure, plan_with(*PROCESSES, kv="dist_gsync"), seen)
    assert (
        message.name == "worker-1"
        and "has pushed the key b 6 times and other keys up to 8 times" in message.reason
    )
    assert "worker-0 has pushed that key 7 times, and waits" in message.reason, message
    for kv in ("dist_ssync", "dist_async"):
        message = stall_cause.explain(failure, plan_with(*PROCESSES, kv=kv), seen)
        assert "the key" not in message.reason, message


def test_the_other_group_does_not_count():
    found = explained(
        "dist_gsync",
        "worker-1",
        worker_0=("training", 9, 300),
        worker_1=("training", 8, 301),
        worker_2=("training", 2, 1),
    )
    assert found["name"] == "worker-1"


def test_asynchronous_workers_do_not_wait():
    found = explained(
        "dist_async",
        "worker-1",
        worker_0=("finished", 2, 900),
        worker_1=("training", 8, 301),
        worker_2=("training", 2, 1),
    )
    assert found["name"] == "worker-1" and "no worker has pushed more often" in found["reason"]


def test_a_server_in_a_long_update_is_the_cause():
    found = explained(
        "dist_sync",
        "worker-1",
        worker_0=("training", 8, 301),
        worker_1=("training", 8, 301),
        server_0=("updating", 0, 302),
    )
    assert found["name"] == "server-0" and "302 s" in found["reason"]


@pytest.mark.parametrize("phase", ["ending", "leaving"])
def test_a_finished_worker_that_does_not_exit_is_the_cause(phase):
    found = explained(
        "dist_sync", "worker-0", worker_0=(phase, 8, 301), worker_1=("training", 8, 305)
    )
    assert (found["name"], found["reason"]) == ("worker-0", "has made no progress")
