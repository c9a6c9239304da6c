"""What is wrong with processes that live: a table of what is seen, and what is to be found."""
import pytest

from mxcluster.agent import health
from mxcluster.agent.health import Limits, Sight, examine

NOW = 1000.0
LIMITS = Limits(stopped=5, start=60, stall=300)


def sight(name, age=500.0, held=0.0, phase="training", pushes=7, idle=0.0, queued=0.0):
    pulse = phase and {"phase": phase, "pushes": pushes, "time": NOW - idle}
    return Sight(name, name.split("-")[0], age, held, pulse or None, still=idle, queued=queued)


@pytest.mark.parametrize("sights,limits,found", [
    ([sight("worker-0"), sight("server-0", phase="serving", idle=900)], LIMITS, None),
    ([sight("scheduler-0", phase="meeting", idle=900)], LIMITS, None),
    # Held by SIGSTOP comes first: its pulse stands still as well.
    ([sight("worker-0", held=4.9, idle=10)], LIMITS, None),
    ([sight("worker-0", idle=400), sight("server-0", held=5, phase="serving")], LIMITS, ("server-0", "stopped")),
    # Who has not come; who waits for others has.
    ([sight("worker-0", age=61, phase="meeting"), sight("worker-1", age=61, phase="starting")], LIMITS, ("worker-1", "start")),
    ([sight("worker-0", age=61, phase=None)], LIMITS, ("worker-0", "start")),
    ([sight("worker-0", age=59, phase=None)], LIMITS, None),
    ([sight("worker-0", age=9999, phase=None)], LIMITS._replace(start=0), None),
    # What it waited for a core does not count, up to a bound.
    ([sight("worker-0", age=100, phase=None, queued=41)], LIMITS, None),
    ([sight("worker-0", age=100, phase=None, queued=39)], LIMITS, ("worker-0", "start")),
    ([sight("worker-0", age=119, phase=None, queued=110)], LIMITS, None),
    ([sight("worker-0", age=120, phase=None, queued=110)], LIMITS, ("worker-0", "start")),
    # Who makes no progress: the one that is behind.
    ([sight("worker-0", idle=299)], LIMITS, None),
    ([sight("worker-0", idle=301, pushes=9), sight("worker-1", idle=301, pushes=8)], LIMITS, ("worker-1", "stall")),
    ([sight("worker-0", idle=301), sight("server-0", phase="updating", idle=301, pushes=0)], LIMITS, ("server-0", "stall")),
    ([sight("worker-0", idle=9999, phase="finished")], LIMITS, None),
    ([sight("worker-0", idle=299, phase="leaving"), sight("worker-1", idle=999, phase="finished")], LIMITS, None),
    ([sight("worker-0", idle=300, phase="leaving")], LIMITS, ("worker-0", "stall")),
    ([sight("worker-0", idle=9999)], LIMITS._replace(stall=0), None),
])
def test_what_is_found(sights, limits, found):
    answer = examine(sights, limits, True)
    assert (answer and (answer.name, answer.kind)) == found, answer


def test_one_that_trains_alone_need_not_come_to_a_kv_store():
    assert examine([sight("worker-0", age=9999, phase="starting")], LIMITS, False) is None


def test_who_waits_for_long_is_asked_where():
    assert not health.somebody_waits([sight("worker-0", idle=9), sight("scheduler-0", phase="meeting", idle=900)], 10)
    assert health.somebody_waits([sight("worker-0", idle=9), sight("worker-1", idle=11)], 10)
    assert health.somebody_waits([sight("worker-0", phase="finished", idle=11)], 10)
    assert health.somebody_waits([sight("server-0", phase="serving", idle=0)], 10)


def test_the_limits_of_a_plan():
    plan = {"heartbeat": {"interval": 1, "timeout": 5}, "timeouts": {"start": 60.0, "stall": 300.0}}
    assert health.limits_of(plan) == LIMITS and health.limits_of({}) == Limits(0, 0, 0)


def test_a_clock_that_was_set_is_no_stall():
    late = Sight("worker-0", "worker", 500.0, 0.0, {"phase": "training", "pushes": 7, "time": NOW - 3600}, still=1.0)
    assert examine([late], LIMITS, True) is None
    assert "no daemon" in examine([sight("worker-0", idle=300, phase="leaving")], LIMITS, True).reason
