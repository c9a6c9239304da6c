import pytest

from mxcluster import work_load


# The results are those of MXNet's _split_input_slice; tests/training compares them with MXNet.
@pytest.mark.parametrize(
    "batch_size, loads, expected",
    [
        (32, [3, 1], [24, 8]),
        (10, [1, 1, 1], [3, 3, 4]),
        (32, [2.5, 1], [23, 9]),
        (3, [1, 1], [2, 1]),  # both halves of 3 are rounded up to 2
        (6, [1, 1, 1, 1], [2, 2, 2, 0]),
        (2, [1, 20, 20], [0, 1, 1]),
        (1, [1], [1]),
    ],
)
def test_a_batch_is_split_as_mxnet_splits_it(batch_size, loads, expected):
    assert work_load.split(batch_size, loads) == expected
