"""Helpers for lists and numbers in messages."""

import math

import pytest

from mxcluster import cluster_files
from mxcluster.errors import BadInput
from mxcluster.job import live_line, verdict_text
from mxcluster.lists import aligned, quantile, several
from tests.unit import statuses


def test_a_number_has_the_singular_or_the_plural_of_its_noun():
    assert [several(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert several(1, "process", "processes") == "1 process"
    assert several(2, "process", "processes") == "2 processes"


@pytest.mark.parametrize(
    "values,part,wanted",
    [
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([1.0, 2.0], 0.5, 1.5),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 0.25, 2.0),
        ([1.0, 2.0, math.inf], 0.5, 2.0),
        ([1.0, math.inf], 0.5, math.inf),
        ([1.0, 2.0, math.inf, math.inf], 0.25, 1.75),
        ([math.inf, math.inf], 0.5, math.inf),
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


def test_messages_about_one_thing_have_no_plural():
    assert live_line.line({"a": None}) == "starting: 0 of 1 node has answered"
    with pytest.raises(BadInput, match="data_sharding: 1 line for 2 workers: "):
        cluster_files.check_data_sharding([(0.0, 1.0)], 2)
    found = statuses.of_verdict({"ok": True, "job": "j", "exit_codes": {"worker-0": 0}})
    assert verdict_text.text(found, "/runs/j")[0].endswith(
        "job j (dist_sync): its only process exited with 0"
    )
