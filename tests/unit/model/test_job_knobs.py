"""The knobs are consistent in themselves. Tests of their users show the rest."""

import json
import pathlib
import re

import pytest

from mxcluster import schemes
from mxcluster.errors import BadInput
from mxcluster.job import options
from mxcluster.model import job_knobs, sweep_knobs
from mxcluster.model.job_knobs import MOST_PROCESSES, MpiOptions, of_plan
from mxcluster.model.knob import WITH_SCHEME, knobs_of, value_of
from mxcluster.model.shapes import Wrong
from mxcluster.model.written import to_text
from tools import docs

SAMPLES = pathlib.Path(__file__).parent / "samples"
KNOBS = [knob for one in job_knobs.SECTIONS for knob in knobs_of(one).values()]
TABLES = KNOBS + [knob for one in sweep_knobs.SECTIONS for knob in knobs_of(one).values()]
TEXTS = {
    name: text
    for section in (*job_knobs.SECTIONS, *sweep_knobs.SECTIONS)
    for name, text in docs.knob_texts(section).items()
}
BY_NAME = {knob.name: knob for knob in KNOBS}


def test_names_are_unique():
    """-e has one meaning."""
    names = [knob.name for knob in TABLES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("knob", TABLES, ids=lambda knob: knob.name)
def test_an_entry_is_complete(knob):
    assert knob.written.type in ("str", "int", "float", "bool", "path", "raw")
    assert TEXTS[knob.name].endswith(".") and knob.written.what
    assert (knob.inherited == WITH_SCHEME) == bool(
        schemes.with_knob(knob.name) and knob.name != "gsync_y"
    )


@pytest.mark.parametrize("knob", TABLES, ids=lambda knob: knob.name)
def test_a_default_is_within_the_limits(knob):
    if knob.name != "mpi_command":  # the user must give one
        given = "" if knob.default is None else knob.default
        assert value_of(knob, given) == knob.default


@pytest.mark.parametrize("kind", ["training", "mpi"])
def test_options_of_the_last_version_are_read(kind):
    sample = json.loads((SAMPLES / "options_2026-11-26.json").read_text())[kind]
    found = of_plan(sample).encode()
    expected = {name: value for name, value in sample.items() if value is not None}
    assert {name: found[name] for name in expected} == expected, "a later version may add knobs"
    assert isinstance(of_plan(sample), MpiOptions) == (kind == "mpi")


def test_a_plan_of_an_earlier_version_has_the_options_of_its_time():
    found = of_plan({"lr": 0.5, "step_ms": None, "unknown": 1})
    assert (found.lr, found.step_ms) == (0.5, 0.0)
    assert (found.lr_scale, found.gsync_y) == ("none", "gradient")
    assert not isinstance(found, MpiOptions)
    assert of_plan({"mpi_command": "./solve"}).mpi_command == "./solve"
    for damaged in (None, [], {"lr": "fast"}, {"batch_size": True}, {"env": {"A": "x\ny"}}):
        with pytest.raises(Wrong):
            of_plan(damaged)


HUGE = ("9" * 30, 10**30, -(10**30), "1e300", -1e300)
# Knobs whose value is a number, a list of numbers, or a word or a number.
NUMBERS = ("staleness", "root_port", "gpus", "mpi_gpus", "mpi_num_instances")
NUMBERS += ("mpi_processes_per_node", "batch_sizes", "gpu_counts", "worker_counts", "lr_factors")


def is_numeric(option):
    return option.name in NUMBERS or option.written.type in ("int", "float")


@pytest.mark.parametrize("value", HUGE, ids=repr)
@pytest.mark.parametrize(
    "option", [one for one in TABLES if is_numeric(one)], ids=lambda one: one.name
)
def test_every_number_has_two_bounds(option, value):
    """A number without a bound starts a job, which dies with a traceback, or plans for ever."""
    if option.name == "lr_factors":  # the learning rate has the bounds
        return
    with pytest.raises(BadInput, match=option.name):
        value_of(option, value)


@pytest.mark.parametrize(
    "knob",
    [one for one in TABLES if is_numeric(one) and not one.written.choices],
    ids=lambda one: one.name,
)
def test_the_pages_have_both_bounds_of_every_number(knob):
    if knob.name in ("data_allocator", "lr_factors"):
        return
    for text in (knob.written.what, TEXTS[knob.name]):
        bounds = r"(?i)(from )?[0-9.]+ .*to [0-9]+|above 0.*(at most|below) [0-9]+"
        assert re.search(bounds, text), text


@pytest.mark.parametrize(
    "knob", [one for one in TABLES if one.written.convert is to_text], ids=lambda one: one.name
)
@pytest.mark.parametrize("text", ["a\0b", "x" * 40000], ids=["null", "long"])
def test_no_text_is_longer_than_an_argument(knob, text):
    with pytest.raises(BadInput, match=knob.name):
        value_of(knob, text)


@pytest.mark.parametrize(
    "value",
    [{"A": "x" * 40000}, {"A%d" % number: "x" * 30000 for number in range(10)}],
    ids=["one", "all"],
)
def test_variables_fit_into_an_environment(value):
    for name in ("env", "env_server", "env_worker", "mpi_env"):
        with pytest.raises(BadInput, match=name):
            value_of(BY_NAME[name], value)
    assert options.cast_secret_env(value)[1]


def test_arguments_fit_on_a_command_line():
    for wrong in (["x" * 40000], ["x" * 30000] * 10, ["a\0"]):
        with pytest.raises(BadInput, match="script_args"):
            value_of(BY_NAME["script_args"], wrong)


def test_a_job_places_no_more_processes_in_turn_than_it_may_have():
    knob = BY_NAME["round_robin"]
    hosts = ["node1", "node2"] * (MOST_PROCESSES // 2)
    assert value_of(knob, hosts) == hosts
    with pytest.raises(BadInput, match="round_robin.*at most %d names" % MOST_PROCESSES):
        value_of(knob, hosts + ["node3"])
