import pytest

from mxcluster.errors import BadInput
from mxcluster.job.plan import shares

THIRDS = [(0.0, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 1.0)]


def test_a_weight_that_gives_an_empty_share_is_refused():
    with pytest.raises(BadInput, match="worker_share line 2.* empty"):
        shares.proportional([1.0, 1e-30])


def test_unequal_weights_inside_a_group_are_refused():
    lines = ["a", "b", "c"]
    shares.check_equal_inside([[0, 1], [2]], ["x", "y"], lines, [1.0, 1.0, 2.0])
    with pytest.raises(BadInput, match=r"group x \(a: 1, c: 2\)"):
        shares.check_equal_inside([[0, 2], [1]], ["x", "y"], lines, [1.0, 1.0, 2.0])


def test_a_file_for_all_workers():
    assert shares.from_file("0.5 1\n0 0.5\n", 2, 2, "shares") == [(0.5, 1.0), (0.0, 0.5)]


def test_a_file_is_scaled_to_the_first_workers():
    text = "0.5 1\n0 0.25\n0.25 0.5\n"
    assert shares.from_file(text, 3, 2, "shares") == [(1 / 3, 1.0), (0.0, 1 / 3)]
    assert shares.from_file(text, 3, 1, "shares") == [(0.0, 1.0)]


def test_a_file_must_have_a_line_for_every_worker():
    with pytest.raises(BadInput, match="2 lines for 3 workers"):
        shares.from_file("0 0.5\n0.5 1\n", 3, 2, "shares")


@pytest.mark.parametrize("kv", ["dist_sync", "dist_device_sync"])
def test_synchronous_schemes_need_equal_shares(kv):
    shares.check_scheme(kv, 1, THIRDS, None)
    shares.check_scheme(kv, 1, [(0.0, 0.333), (0.333, 0.667), (0.667, 1.0)], "shares")
    for unequal in (
        [(0.0, 0.5), (0.5, 0.75), (0.75, 1.0)],
        [(0.0, 0.32), (0.32, 0.65), (0.65, 1.0)],
    ):
        with pytest.raises(
            BadInput, match="unequal shares .* kv=%s.*use kv=dist_gsync, or equal shares" % kv
        ):
            shares.check_scheme(kv, 1, unequal, "shares")


@pytest.mark.parametrize("kv", ["dist_async", "dist_gsync", "dist_ssync", "local"])
def test_other_schemes_take_any_shares(kv):
    shares.check_scheme(kv, 1, [(0.0, 0.9), (0.9, 1.0)], "shares")


def test_a_data_sharding_file_without_data_allocator_is_refused():
    with pytest.raises(BadInput, match="^data_sharding_file x is given, but data_allocator=0"):
        shares.check_scheme("dist_gsync", 0, THIRDS, "data_sharding_file x")
