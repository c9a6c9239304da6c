import pytest

from mxcluster.errors import BadInput
from mxcluster.job.plan import shares


def test_a_weight_that_gives_an_empty_share_is_refused():
    with pytest.raises(BadInput, match="worker_share line 2.* empty"):
        shares.proportional([1.0, 1e-30])


def test_a_file_for_all_workers():
    assert shares.from_file("0.5 1\n0 0.5\n", 2, 2, "shares") == [(0.5, 1.0), (0.0, 0.5)]


def test_a_file_is_scaled_to_the_first_workers():
    text = "0.5 1\n0 0.25\n0.25 0.5\n"
    assert shares.from_file(text, 3, 2, "shares") == [(1 / 3, 1.0), (0.0, 1 / 3)]
    assert shares.from_file(text, 3, 1, "shares") == [(0.0, 1.0)]


@pytest.mark.parametrize("kv", ["dist_async", "dist_gsync", "dist_ssync", "local"])
def test_other_schemes_take_any_shares(kv):
    shares.check_scheme(kv, 1, [(0.0, 0.9), (0.9, 1.0)], "shares")
