"""Evaluations of the servers' weights, with simulated arrays and simulated time."""

import types

import pytest

from mxcluster.training.programs.image_classification import evaluations


class Array:
    """An array of one number, on a device of its own."""

    def __init__(self, value=0.0, arrive=lambda: None):
        self.value, self.arrive = value, arrive

    def wait_to_read(self):
        self.arrive()

    def copyto(self, other):
        if other == "the CPU":
            return Array(self.value)
        other.value = self.value
        return other


def module_of(*weights, means=()):
    """Return a Module on two devices with these arrays."""
    return types.SimpleNamespace(
        _exec_group=types.SimpleNamespace(
            param_arrays=[[weight, Array(weight.value)] for weight in weights],
            aux_arrays=[[mean, Array(mean.value)] for mean in means],
        )
    )


@pytest.mark.parametrize("total, steps, workers", [(200, 500, 4), (7, 7, 3), (3, 100, 5)])
def test_the_workers_take_turns_at_equal_spacing(total, steps, workers):
    """Of workers that progress alike, an evaluation comes every steps / total steps."""
    own = [evaluations.turns(total, steps, workers, index) for index in range(workers)]
    every = sorted(turn for turns in own for turn in turns)
    assert [turn.number for turn in every] == list(range(1, total + 1))
    assert all(0 <= turn.step - turn.number * steps / total < 1 for turn in every)
    for index, turns in enumerate(own):
        assert {(turn.number - 1) % workers for turn in turns} <= {index}


def test_a_step_has_at_most_one_evaluation():
    """Else two readings in a row would be of the same weights, and a target reached twice."""
    own = [evaluations.turns(200, 30, 4, index) for index in range(4)]
    steps = sorted(turn.step for turns in own for turn in turns)
    assert steps == list(range(1, 31))
    assert evaluations.turns(0, 30, 4, 1) == []


def test_a_worker_copies_the_weights_that_it_has_pulled_and_evaluates_them_at_the_end():
    now = [100.0]

    def arrive():  # the pull of step 2 is still on its way
        now[0] += 3.0
        weight.value = 2.0

    weight, mean = Array(1.0, arrive), Array(0.5)
    module = module_of(weight, means=[mean])
    found = evaluations.Evaluations(module, 2, 4, 1, 0, "the CPU", clock=lambda: now[0])
    found.at(0, 0)
    found.at(1, 32)
    assert now[0] == 100.0, "without a due evaluation the worker does not wait"
    found.at(2, 64)
    found.at(2, 64)  # once only, at the end of an epoch and at the begin of the next one
    weight.arrive, weight.value, mean.value = lambda: None, 7.0, 0.7
    found.at(4, 128)
    weight.value = 9.0

    def accuracy():
        group = module._exec_group
        values = [[one.value for one in arrays] for arrays in group.param_arrays]
        assert values == [[values[0][0]] * 2], "all devices have the copy"
        return values[0][0] / 10 + group.aux_arrays[0][0].value / 100

    first, second = found.finish(accuracy)
    assert (first.number, first.time, first.samples) == (1, 103.0, 64)
    assert (second.number, second.time, second.samples) == (2, 103.0, 128)
    assert first.accuracy == pytest.approx(0.205) and second.accuracy == pytest.approx(0.707)
    assert list(found.finish(accuracy)) == []
