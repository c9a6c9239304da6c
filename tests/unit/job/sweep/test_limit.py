"""The speed of a scheme against the sum of the workers' own speeds."""

from mxcluster.job.sweep import limit


def test_the_limit_is_the_sum_of_the_speeds_of_all_workers_alone():
    assert limit.absolute([100.0, 50.0]) == 150.0
    assert limit.absolute([100.0, None]) is None, "an unknown speed is none of 0"
    assert limit.absolute([100.0, 0.0]) is None
    assert limit.absolute([]) is None


def test_a_speed_is_a_part_of_the_limit_and_not_of_another_scheme():
    """With speeds 1, 1, 1/4 a scheme at the pace of the slowest has 1/3 of the limit."""
    assert limit.part(75.0, limit.absolute([100.0, 100.0, 25.0])) == 75 / 225
    assert limit.part(None, 225.0) is None and limit.part(75.0, None) is None
