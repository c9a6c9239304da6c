"""The mark of a case that takes the same path as others: only `make soak` runs this case."""

import pytest


def seldom(*values, **options):
    """Return a parameter for `pytest.mark.parametrize` that only `make soak` runs.

    Args: `values` of the parameter; `options` as for `pytest.param`, such as `id`.
    """
    return pytest.param(*values, marks=pytest.mark.soak, **options)
