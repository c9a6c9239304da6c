"""The lease with correct and wrong clocks, and with slow controllers."""

import pytest

from mxcluster.agent.lease import Lease
from mxcluster.model.status import Expiry

GONE, ALIVE, UNSEEN = False, True, None


def test_a_lease_runs_out_after_its_seconds():
    lease = Lease(10)
    assert not lease.expired(1000.0, wall=1000.0, ticks=50.0, controller=GONE)
    assert not lease.expired(1000.0, wall=1010.0, ticks=60.0, controller=GONE)
    assert lease.expired(1000.0, wall=1010.5, ticks=60.5, controller=GONE) == (
        Expiry(age=10.5, limit=10)
    )


def test_the_age_of_an_old_mtime_counts():
    assert Lease(10).expired(1000.0, wall=1011.0, ticks=50.0, controller=GONE)


def test_an_mtime_in_the_future_does_not_extend_the_lease():
    lease = Lease(10)
    assert not lease.expired(5000.0, wall=1000.0, ticks=50.0, controller=GONE)
    assert lease.expired(5000.0, wall=1011.0, ticks=61.0, controller=GONE)


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_a_changed_clock_neither_ends_nor_extends_the_lease(jump):
    lease = Lease(10)
    assert not lease.expired(1000.0, wall=1000.0, ticks=50.0, controller=GONE)
    assert not lease.expired(1000.0, wall=1005.0 + jump, ticks=55.0, controller=GONE)
    assert lease.expired(1000.0, wall=1011.0 + jump, ticks=61.0, controller=GONE)


def test_each_change_counts_as_a_renewal_now_if_another_machine_sets_the_mtime():
    lease = Lease(10)
    assert not lease.expired(1000.0, wall=None, ticks=5000.0, controller=GONE)
    assert not lease.expired(1001.0, wall=None, ticks=5009.0, controller=GONE)
    assert not lease.expired(900.0, wall=None, ticks=5018.0, controller=GONE)
    assert lease.expired(900.0, wall=None, ticks=5028.5, controller=GONE) == (
        Expiry(age=10.5, limit=10, gap=9.0)
    )


def test_a_lease_without_a_file_begins_with_the_first_check():
    lease = Lease(10)
    assert not lease.expired(None, wall=1000.0, ticks=50.0, controller=GONE)
    assert lease.expired(None, wall=1011.0, ticks=61.0, controller=GONE)


@pytest.mark.parametrize("seconds", [0, None])
def test_no_lease_never_runs_out(seconds):
    assert not Lease(seconds).expired(1000.0, wall=99999.0, ticks=99999.0, controller=GONE)


def renewed(*gaps, controller=UNSEEN, seconds=10):
    """Return (a lease renewed after each of these gaps, the time of its last renewal)."""
    lease, now = Lease(seconds), 1000.0
    assert not lease.expired(now, now, now, controller)
    for gap in gaps:
        now += gap
        assert not lease.expired(now, now, now, controller), (
            "the lease ran out in a gap of %s s" % gap
        )
    return lease, now


def test_the_first_renewal_may_take_twice_as_long():
    lease, now = renewed()
    assert not lease.expired(now, now + 19.0, now + 19.0)
    assert lease.expired(now, now + 21.0, now + 21.0)


@pytest.mark.parametrize(
    "gaps, limit",
    [([0.5], 10), ([5], 10), ([6], 12), ([6, 0.5, 0.5, 0.5], 12), ([6, 9], 18), ([8, 12, 19], 20)],
)
def test_a_late_controller_gets_twice_its_longest_gap(gaps, limit):
    lease, now = renewed(*gaps)
    assert not lease.expired(now, now + limit - 0.1, now + limit - 0.1)
    told = lease.expired(now, now + limit + 0.1, now + limit + 0.1)
    assert vars(told) == pytest.approx({"age": limit + 0.1, "limit": limit, "gap": max(gaps)})


@pytest.mark.parametrize("gaps", [[], [0.5, 0.5]])
@pytest.mark.parametrize("seconds, limit", [(10, 180), (60, 180), (100, 200)])
def test_a_controller_seen_alive_may_be_silent_for_minutes(gaps, seconds, limit):
    lease, now = renewed(*gaps, controller=ALIVE, seconds=seconds)
    assert not lease.expired(now, now + limit - 1, now + limit - 1, ALIVE)
    assert lease.expired(now, now + limit + 0.1, now + limit + 0.1, ALIVE).limit == limit


@pytest.mark.parametrize("gaps", [[], [0.5], [9, 9]])
def test_a_controller_seen_gone_gets_only_the_lease(gaps):
    lease, now = renewed(*gaps, controller=ALIVE)
    assert not lease.expired(now, now + 10.0, now + 10.0, ALIVE)
    assert not lease.expired(now, now + 10.0, now + 10.0, GONE)
    assert lease.expired(now, now + 10.1, now + 10.1, GONE).limit == 10


def test_an_older_mtime_does_not_undo_a_renewal():
    lease = Lease(10)
    assert not lease.expired(1000.0, wall=1000.0, ticks=50.0, controller=GONE)
    assert not lease.expired(1.0, wall=1001.0, ticks=51.0, controller=GONE)
    assert lease.expired(1.0, wall=1010.1, ticks=60.1, controller=GONE)


def test_a_clock_change_between_renewal_and_check_does_not_end_the_lease():
    lease = Lease(10)
    assert not lease.expired(1000.0, wall=1000.0, ticks=50.0)
    assert not lease.expired(1001.0, wall=4601.2, ticks=51.2)
    assert not lease.expired(4602.0, wall=4602.1, ticks=52.1)
    assert lease.expired(4602.0, wall=9999.0, ticks=90.0)
