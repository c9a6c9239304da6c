"""The time to a target accuracy, from the evaluations of all workers."""

import pytest

from mxcluster.job.sweep import readings
from mxcluster.model.sweep import Reading
from tests.unit.job.sweep.cluster import readings_of
from tests.unit.job.sweep.test_results import event


def reached(*points, target=0.9):
    each = [Reading.decode(one) for one in readings_of(*points)]
    return readings.reached(each, target)


def test_the_target_is_reached_at_the_first_of_two_readings_in_a_row():
    assert reached((1.0, 0.5), (2.0, 0.9), (2.5, 0.95), (3.0, 0.1)).seconds == 2.0


def test_one_reading_above_the_target_can_be_noise():
    found = reached((1.0, 0.95), (2.0, 0.89), (4.0, 0.9), (5.0, 0.91))
    assert found.seconds == 4.0
    assert reached((1.0, 0.5), (2.0, 0.95)) is None, "no reading follows"
    assert reached() is None


def test_the_resolution_is_the_distance_from_the_reading_before():
    assert reached((1.0, 0.5), (39.5, 0.8), (40.0, 0.9), (41.0, 0.9)).resolution == 0.0125
    assert reached((2.0, 0.9), (3.0, 0.9)).resolution == 1.0, "it may have been at any time before"


def test_the_readings_of_all_workers_count_in_the_order_of_time():
    """A slow worker 0 and a fast worker 1: the fast one sees the target first."""
    events = [event("start", 0, 100.0), event("start", 1, 101.0)]
    events += [event("batch", 0, 104.0, samples=40), event("batch", 0, 110.0, samples=100)]
    events += [event("batch", 1, 110.0, samples=900), event("epoch", 0, 111.0, accuracy=0.99)]
    events += [
        event("evaluation", 0, 107.0, number=1, samples=70, accuracy=0.5),
        event("evaluation", 1, 103.0, number=2, samples=300, accuracy=0.25),
        event("evaluation", 1, 109.0, number=4, samples=800, accuracy=0.91),
        event("evaluation", 1, 109.5, number=5, samples=850, accuracy=None),
    ]
    found = readings.of_job(events)
    assert [(one.seconds, one.worker, one.accuracy) for one in found] == [
        (3.0, 1, 0.25),
        (7.0, 0, 0.5),
        (9.0, 1, 0.91),
    ]
    assert [one.samples for one in found] == [330, 703, 890], "of both workers at that time"
    assert readings.of_job(events[2:]) == [], "without a start there is no time"


@pytest.mark.parametrize("moment, value", [(0, 5), (1, 5), (2, 10), (2.5, 10), (3, 10), (4, 10)])
def test_a_number_between_two_reports_is_interpolated(moment, value):
    assert readings.interpolated([(1, 5), (2, 10), (3, 10)], moment) == value
    assert readings.interpolated([(1, 5.0), (2, 10.0)], 1.5) == 7.5
    assert readings.interpolated([], moment) == 0
