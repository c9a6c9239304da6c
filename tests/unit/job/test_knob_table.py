"""The table of knobs is consistent in itself. Tests of its users show the rest."""

import re

import pytest

from mxcluster import schemes
from mxcluster.errors import BadInput
from mxcluster.job import option_types, options
from mxcluster.job.knob_table import KNOBS, MOST_PROCESSES, OPTIONS
from mxcluster.job.option_types import cast_value
from mxcluster.job.sweep import knob_table as sweeps

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


HUGE = ("9" * 30, 10**30, -(10**30), "1e300", -1e300)
# Knobs whose value is a number, a list of numbers, or a word or a number.
NUMBERS = ("staleness", "root_port", "gpus", "mpi_gpus", "mpi_num_instances")
NUMBERS += ("mpi_processes_per_node", "batch_sizes", "gpu_counts", "worker_counts", "lr_factors")
TABLES = KNOBS + sweeps.KNOBS


def is_numeric(option):
    return option.name in NUMBERS or getattr(option, "type", "") in ("int", "float")


@pytest.mark.parametrize("value", HUGE, ids=repr)
@pytest.mark.parametrize(
    "option", [one for one in TABLES if is_numeric(one)], ids=lambda one: one.name
)
def test_every_number_has_two_bounds(option, value):
    """A number without a bound starts a job, which dies with a traceback, or plans for ever."""
    if option.name == "poll":  # Ansible checks its choices
        assert option.choices
        return
    if option.name == "lr_factors":  # the learning rate has the bounds
        return
    with pytest.raises(BadInput, match=option.name):
        cast_value(option, value)


@pytest.mark.parametrize(
    "knob",
    [one for one in KNOBS + sweeps.KNOBS if is_numeric(one) and not one.choices],
    ids=lambda one: one.name,
)
def test_the_pages_have_both_bounds_of_every_number(knob):
    if isinstance(knob.check, tuple) or knob.name == "lr_factors":
        return
    for text in (knob.message, knob.description):
        bounds = r"(?i)(from )?[0-9.]+ .*to [0-9]+|above 0.*(at most|below) [0-9]+"
        assert re.search(bounds, text), text


@pytest.mark.parametrize(
    "knob", [one for one in TABLES if one.cast is option_types.to_text], ids=lambda one: one.name
)
@pytest.mark.parametrize("text", ["a\0b", "x" * 40000], ids=["null", "long"])
def test_no_text_is_longer_than_an_argument(knob, text):
    with pytest.raises(BadInput, match=knob.name):
        cast_value(knob, text)


@pytest.mark.parametrize(
    "value",
    [{"A": "x" * 40000}, {"A%d" % number: "x" * 30000 for number in range(10)}],
    ids=["one", "all"],
)
def test_variables_fit_into_an_environment(value):
    for name in ("env", "env_server", "env_worker", "mpi_env"):
        (knob,) = [knob for knob in KNOBS if knob.name == name]
        with pytest.raises(BadInput, match=name):
            cast_value(knob, value)
    assert options.cast_secret_env(value)[1]


def test_arguments_fit_on_a_command_line():
    (knob,) = [knob for knob in KNOBS if knob.name == "script_args"]
    for wrong in (["x" * 40000], ["x" * 30000] * 10, ["a\0"]):
        with pytest.raises(BadInput, match="script_args"):
            cast_value(knob, wrong)


def test_a_job_places_no_more_processes_in_turn_than_it_may_have():
    (knob,) = [knob for knob in KNOBS if knob.name == "round_robin"]
    hosts = ["node1", "node2"] * (MOST_PROCESSES // 2)
    assert cast_value(knob, hosts) == hosts
    with pytest.raises(BadInput, match="round_robin.*at most %d names" % MOST_PROCESSES):
        cast_value(knob, hosts + ["node3"])
