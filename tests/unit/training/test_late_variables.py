"""Variables that a script sets too late, because the worker has loaded MXNet before."""

import pytest

from mxcluster.training import late_variables


@pytest.mark.parametrize(
    "now, words",
    [
        ({"OMP_NUM_THREADS": "3", "A": "2"}, ["OMP_NUM_THREADS=3,", '{"OMP_NUM_THREADS": "3"}']),
        ({"MKL_NUM_THREADS": "2", "KMP_AFFINITY": "compact"}, ["KMP_AFFINITY=compact, MKL_NUM_T"]),
        ({"KMP_DUPLICATE_LIB_OK": "True", "KMP_INIT_AT_FORK": "FALSE"}, None),  # by scikit-learn
        # MXNet reads these when it makes the store or the engine, or nothing has changed.
        ({"MXNET_KVSTORE_BIGARRAY_BOUND": "100", "OMP_NUM_THREADS": "1"}, None),
    ],
)
def test_the_warning_names_each_variable_and_the_cure(now, words):
    text = late_variables.warning({"OMP_NUM_THREADS": "1"}, now)
    assert (text is None) is (words is None), text
    assert not words or all(word in text for word in ['-e \'{"env_worker": {"', *words]), text
