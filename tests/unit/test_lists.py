"""Helpers for lists and numbers in messages."""

import math

import pytest

from mxcluster.lists import aligned, quantile, several


def test_a_number_has_the_singular_or_the_plural_of_its_noun():
    assert [several(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert several(1, "process", "processes") == "1 process"
    assert several(2, "process", "processes") == "2 processes"


@pytest.mark.parametrize(
    "values,part,wanted",
    [
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([1.0, 2.0], 0.5, 1.5),
        ([1.0, math.inf], 0.5, math.inf),
        ([1.0, 2.0, math.inf, math.inf], 0.25, 1.75),
        ([7.0], 0.75, 7.0),
    ],
)
def test_a_quantile_is_interpolated(values, part, wanted):
    assert quantile(values, part) == wanted


def test_the_columns_of_a_table_are_aligned():
    assert aligned([("job", "kv"), ("a", "local"), ("b-long", "")]) == [
        "job     kv",
        "a       local",
        "b-long",
    ]
    assert aligned([]) == []
