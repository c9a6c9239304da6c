"""Measure how fast a server process updates a model, for `profile.yml`."""

from typing import Callable, Sequence

from mxnet import nd
from mxnet.optimizer import create

from mxcluster.node.mxnet_types import NDArray, Optimizer
from mxcluster.training import pulse_file, timing


def updates_per_s(
    updater: Callable[[Optimizer], Callable[[int, NDArray, NDArray], None]],
    sizes: Sequence[int],
    seconds: float,
) -> float:
    """Return how many times per second SGD with momentum updates a whole model.

    Args:
        updater: a function that takes an optimizer and returns a function (index, gradient,
            weight), which updates one array.
        sizes: the number of elements of each parameter.
        seconds: the time limit. The function updates the model at least timing.LEAST_STEPS times,
            even beyond this limit.
    """
    update = updater(create("sgd", learning_rate=0.05, momentum=0.9))
    gradients = [nd.zeros((size,)) for size in sizes]
    weights = [nd.zeros((size,)) for size in sizes]

    def step() -> None:
        for index, (gradient, weight) in enumerate(zip(gradients, weights)):
            update(index, gradient, weight)
            weight.wait_to_read()
        pulse_file.beat()

    step()  # The first update makes the optimizer's states.
    return 1 / timing.median(timing.repeat(step, seconds))
