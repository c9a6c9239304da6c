"""The table of knobs is consistent in itself. Tests of its users show the rest."""

import pytest

from mxcluster import schemes
from mxcluster.job.knob_table import KNOBS, OPTIONS
from mxcluster.job.option_types import cast_value

each_knob = pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)


def test_names_and_flags_are_unique():
    for values in ([knob.name for knob in KNOBS], [knob.flag for knob in KNOBS if knob.flag]):
        assert len(set(values)) == len(values)


@each_knob
def test_an_entry_is_complete(knob):
    assert knob.type in ("str", "int", "float", "bool", "list", "path", "raw")
    assert knob.description.endswith(".") and "  " not in knob.description
    assert knob.inherited in (True, False) + schemes.NAMES
    assert knob.flag == "" or knob.flag.startswith("--")
    if knob.own:
        assert not knob.inherited and not knob.flag
    else:
        assert knob.cast and knob.message and not knob.no_log


@pytest.mark.parametrize("knob", OPTIONS, ids=lambda knob: knob.name)
def test_a_default_is_within_the_limits(knob):
    assert cast_value(knob, "" if knob.default is None else knob.default) == knob.default
    assert knob.choices is None or knob.default in knob.choices


def test_the_scheme_comes_first():
    """`options.inherit` has taken it over before it looks at knobs that one scheme inherits."""
    assert OPTIONS[0].name == "kv"
