"""Helpers for lists and numbers in messages."""

import pytest

from mxcluster.cluster import files
from mxcluster.errors import BadInput
from mxcluster.job import live_line, verdict_text
from mxcluster.lists import several


def test_a_number_has_the_singular_or_the_plural_of_its_noun():
    assert [several(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert several(1, "process", "processes") == "1 process"
    assert several(2, "process", "processes") == "2 processes"


def test_messages_about_one_thing_have_no_plural():
    assert live_line.line({"a": None}) == "starting: 0 of 1 node has answered"
    with pytest.raises(BadInput, match="data_sharding: 1 line for 2 workers: "):
        files.check_data_sharding([(0.0, 1.0)], 2)
    found = {
        "ok": True,
        "job": "j",
        "kv": "local",
        "exit_codes": {"worker-0": 0},
        "accuracy": None,
        "samples_per_s": None,
        "seconds": 1.0,
        "warnings": [],
        "files": 0,
    }
    assert verdict_text.text(found, "/runs/j")[0].endswith(
        "job j (local): its only process exited with 0"
    )
