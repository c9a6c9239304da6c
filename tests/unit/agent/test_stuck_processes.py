"""Processes that are alive and make no progress: a table of observations and findings."""

import pytest

from mxcluster import phases
from mxcluster.agent import stuck_processes
from mxcluster.agent.stuck_processes import Sight, examine
from mxcluster.model.plan import Timeouts
from mxcluster.model.status import Pulse
from tests.plans import plan_with

NOW = 10000.0


def sight(name, age=500.0, held=0.0, phase="training", pushes=7, idle=0.0, queued=0.0):
    pulse = phase and Pulse(phase=phase, pushes=pushes, time=NOW - idle)
    return Sight(name, name.split("-")[0], age, held, pulse or None, still=idle, queued=queued)


ROOT, LIMIT = {"address": "10.0.0.1", "port": 9091}, {"start": 60, "stall": 300}
LIMITS = plan_with(heartbeat={"timeout": 5}, timeouts=LIMIT, root=ROOT)
NO_START = LIMITS.replaced(timeouts=Timeouts(start=0, stall=300))
NO_STALL = LIMITS.replaced(timeouts=Timeouts(start=60, stall=0))
SLOW, SLOWER = sight("worker-0", idle=301, pushes=9), sight("worker-1", idle=301, pushes=8)


@pytest.mark.parametrize(
    "sights,limits,found",
    [
        ([sight("worker-0"), sight("server-0", phase="serving", idle=900)], LIMITS, None),
        ([sight("scheduler-0", phase="connecting", idle=900)], LIMITS, None),
        ([SLOW, sight("server-0", held=5, phase="serving")], LIMITS, ("server-0", "stopped")),
        ([sight("worker-0", age=61, phase=None)], LIMITS, ("worker-0", "start")),
        ([sight("worker-0", age=9999, phase=None)], NO_START, None),
        # Time in the run queue does not count, up to a limit.
        ([sight("worker-0", age=100, phase=None, queued=41)], LIMITS, None),
        ([sight("worker-0", age=120, phase=None, queued=110)], LIMITS, ("worker-0", "start")),
        ([SLOW, SLOWER], LIMITS, ("worker-1", "stall")),
        ([sight("worker-0", idle=300, phase="leaving")], LIMITS, ("worker-0", "stall")),
        ([sight("worker-0", idle=9999)], NO_STALL, None),
    ],
)
def test_the_stuck_process_and_its_kind_are_found(sights, limits, found):
    answer = examine(sights, limits)
    assert (answer and (answer.name, answer.kind)) == found, answer


def test_a_single_worker_need_not_reach_the_kv_store():
    assert (
        examine([sight("worker-0", age=9999, phase="starting")], LIMITS.replaced(root=None)) is None
    )


def test_a_long_wait_is_noticed():
    assert not stuck_processes.has_waiting_worker(
        [sight("worker-0", idle=9), sight("scheduler-0", phase="connecting", idle=900)], 10
    )
    assert stuck_processes.has_waiting_worker(
        [sight("worker-0", idle=9), sight("worker-1", idle=11)], 10
    )
    assert stuck_processes.has_waiting_worker([sight("worker-0", phase="finished", idle=11)], 10)
    assert stuck_processes.has_waiting_worker([sight("server-0", phase="serving", idle=0)], 10)


def test_a_changed_clock_is_no_stall():
    late = sight("worker-0", idle=3600)._replace(still=1.0)
    assert examine([late], LIMITS) is None


@pytest.mark.parametrize("phase", [phases.ENDING, phases.LEAVING])
def test_a_thread_that_never_ends_is_the_cause(phase):
    assert "non-daemon" in examine([sight("worker-0", idle=300, phase=phase)], LIMITS).reason


def test_a_frozen_container_is_no_signal():
    """`docker pause` freezes the control group; the peers miss heartbeats a moment later."""
    frozen = sight("worker-0", held=5)._replace(frozen=True)
    finding = examine([frozen], LIMITS)
    assert finding.kind == "stopped" and "its container has been frozen for 5 s" in finding.reason
    assert "docker pause" in finding.reason


def test_a_job_ends_after_its_max_time():
    limited = plan_with(options={"max_time": 3600})
    assert stuck_processes.overtime(limited, 3599.9) is None
    finding = stuck_processes.overtime(limited, 3600.0)
    assert (finding.name, finding.kind) == (None, "time")
    assert "its max_time of 3600 s" in finding.reason
    assert stuck_processes.overtime(LIMITS, 1e9) is None
