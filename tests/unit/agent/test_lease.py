"""A lease under clocks that behave and clocks that do not."""
import pytest

from mxcluster.agent.lease import Lease


def test_it_runs_out_after_its_seconds():
    lease = Lease(10)
    assert not lease.expired(1000.0, wall=1000.0, ticks=50.0)
    assert not lease.expired(1000.0, wall=1010.0, ticks=60.0)
    assert lease.expired(1000.0, wall=1010.1, ticks=60.1)


def test_a_renewal_begins_it_anew():
    lease = Lease(10)
    assert not lease.expired(1000.0, wall=1000.0, ticks=50.0)
    assert not lease.expired(1009.0, wall=1009.2, ticks=59.2)
    assert not lease.expired(1009.0, wall=1018.9, ticks=68.9)
    assert lease.expired(1009.0, wall=1019.1, ticks=69.1)


def test_an_old_mtime_counts_with_its_age():
    assert Lease(10).expired(1000.0, wall=1011.0, ticks=50.0)


def test_an_mtime_in_the_future_does_not_make_it_longer():
    lease = Lease(10)
    assert not lease.expired(5000.0, wall=1000.0, ticks=50.0)
    assert lease.expired(5000.0, wall=1011.0, ticks=61.0)


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_a_clock_that_is_set_neither_ends_it_nor_keeps_it(jump):
    lease = Lease(10)
    assert not lease.expired(1000.0, wall=1000.0, ticks=50.0)
    assert not lease.expired(1000.0, wall=1005.0 + jump, ticks=55.0)
    assert lease.expired(1000.0, wall=1011.0 + jump, ticks=61.0)


def test_without_a_file_it_begins_when_first_asked():
    lease = Lease(10)
    assert not lease.expired(None, wall=1000.0, ticks=50.0)
    assert lease.expired(None, wall=1011.0, ticks=61.0)


@pytest.mark.parametrize("seconds", [0, None])
def test_no_lease_never_runs_out(seconds):
    assert not Lease(seconds).expired(1000.0, wall=99999.0, ticks=99999.0)


def test_the_first_renewal_may_take_longer():
    lease = Lease(10, first=30)
    assert not lease.expired(1000.0, wall=1000.0, ticks=0.0)
    assert not lease.expired(1000.0, wall=1029.0, ticks=29.0)
    assert not lease.expired(1029.0, wall=1029.0, ticks=29.5)
    assert lease.expired(1029.0, wall=1041.0, ticks=41.0)


def test_but_not_if_who_would_renew_it_is_gone():
    lease = Lease(10, first=30)
    assert not lease.expired(1000.0, wall=1000.0, ticks=0.0)
    assert not lease.expired(1000.0, wall=1010.1, ticks=10.1)
    lease.starter_is_gone()
    assert lease.expired(1000.0, wall=1010.2, ticks=10.2)
