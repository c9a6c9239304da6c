"""The tasks of `bench compare` follow the method of a comparison."""

import pytest

from bench import compare
from mxcluster.job.sweep import comparison, runner, specs
from mxcluster.model import sweep_knobs
from mxcluster.model.job_knobs import Options
from mxcluster.model.knob import COMPARE
from tests.unit.job.sweep.cluster import planned


def specification(task):
    given = compare.knobs(task)
    own = sweep_knobs.CLASSES[COMPARE].FIELDS
    known = set(own) | set(sweep_knobs.passed_on(COMPARE))
    assert set(given) <= known and set(given) - set(own) <= set(Options.FIELDS), given
    knobs = sweep_knobs.cast(COMPARE, given)
    return specs.begin("x", knobs, specs.base_of(COMPARE, given, list(given), "/"), 1e9, planned)


@pytest.mark.parametrize("task", compare.TASKS)
def test_a_task_has_grids_and_seeds_of_its_own(task):
    spec = specification(task)
    assert spec.knobs.momenta == [0.0, 0.9] and spec.knobs.lr_growth >= 4 and spec.knobs.solo
    assert len(comparison.measuring_seeds(spec)) >= 5 and len(spec.notes) == 1
    assert "no profile gives shares" in spec.notes[0], "the benchmark makes one first"
    assert not set(comparison.measuring_seeds(spec)) & set(comparison.choosing_seeds(spec))
    assert runner.check(spec, planned), "each job can be planned"
    assert set(compare.MODEL) <= set(compare.knobs(task)), "the profile measures the same model"


@pytest.mark.parametrize("task", compare.TASKS)
def test_a_small_batch_of_one_sample_takes_longer_than_its_real_pass(task):
    assert compare.STEP_MS[task] / compare.knobs(task)["batch_size"] >= 10, "milliseconds"


def test_two_tasks_are_compared_and_go_on_under_their_own_names():
    assert len(compare.TASKS) == 2 and set(compare.TASKS) == set(compare.NETS)
    line = compare.command("warped", "inventory")
    assert line[:4] == ("ansible-playbook", "-i", "inventory", "compare.yml")
    assert line[5].endswith("/" + compare.TASKS["warped"]) and '"sweep": "warped"' in line[-1]
