"""Evaluate the servers' weights at equal spacing in samples, without a cost for the training."""

import time
from typing import Callable, Iterator, List, NamedTuple, Sequence

from mxcluster.model.events import Evaluation
from mxcluster.node.mxnet_types import Context, Module, NDArray
from mxcluster.training.programs.image_classification.meter import wait


class Copy(NamedTuple):
    """The weights that a worker pulled, and the place of the pull in the training."""

    number: int
    time: float  # unix seconds
    samples: int  # that the worker had trained
    arrays: Sequence[NDArray]


class Evaluations(object):
    """The evaluations of one worker, which takes turns with the other workers.

    The training of all workers together has `total` evaluations. Evaluation number n, from 1 on, is
    due at the part n / `total` of the training, and belongs to worker (n - 1) modulo `workers`. If
    all workers progress alike, the evaluations have equal distances in samples of all workers.

    A worker only copies the weights during the training: it pulls them anyway after each step, and
    the copy of an array is cheap. `finish` evaluates the copies after the end of the training of
    all workers. So the evaluations take no time of the training, and no CPU of another worker.

    Args:
        module: the bound Module that the worker trains.
        total: the number of evaluations of all workers, 0 for none.
        steps: the number of steps of this worker's training.
        workers: the number of workers.
        index: the index of this worker.
        place: the context of the copies, the memory of the CPU.
        clock: a function that returns unix seconds.
    """

    def __init__(
        self,
        module: Module,
        total: int,
        steps: int,
        workers: int,
        index: int,
        place: Context,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._module, self._place, self._clock = module, place, clock
        self._turns = turns(total, steps, workers, index)
        self._copies: List[Copy] = []

    def at(self, step: int, samples: int) -> None:
        """Copy the weights if an evaluation is due, else return at once.

        Call this method between an update and the next forward pass.

        Args: `step` the number of steps that the worker has trained; `samples` their samples.
        """
        due = [number for number, place in self._turns if place <= step]
        if due:
            del self._turns[: len(due)]
            arrays = self._arrays()
            wait([arrays])  # until the servers' weights have arrived
            copies = [array.copyto(self._place) for array in arrays]
            self._copies.append(Copy(due[-1], self._clock(), samples, copies))

    def finish(self, accuracy: Callable[[], float]) -> Iterator[Evaluation]:
        """Yield the evaluation of each copy. The Module keeps the weights of the last copy.

        Args: `accuracy` returns the accuracy of the Module's weights on held-out samples (0 to 1).
        """
        while self._copies:
            copy = self._copies.pop(0)
            group = self._module._exec_group
            for source, targets in zip(copy.arrays, [*group.param_arrays, *group.aux_arrays]):
                for target in targets:
                    source.copyto(target)
            yield Evaluation(
                time=round(copy.time, 3),
                number=copy.number,
                samples=copy.samples,
                accuracy=accuracy(),
            )

    def _arrays(self) -> List[NDArray]:
        """Return the first device's arrays of weights and of running means."""
        group = self._module._exec_group
        return [arrays[0] for arrays in [*group.param_arrays, *group.aux_arrays]]


class Turn(NamedTuple):
    """An evaluation of a worker."""

    number: int
    step: int  # after which the evaluation is due


def turns(total: int, steps: int, workers: int, index: int) -> List[Turn]:
    """Return the evaluations of the worker `index`, in their order.

    Two evaluations of the job are never due after the same step, because they would have the same
    weights under a synchronous scheme. So `total` counts as `steps` if it is larger.

    Args: `total` the evaluations of all `workers`; `steps` the steps of the worker's training.
    """
    total = min(total, steps)
    return [
        Turn(number, -(-number * steps // total)) for number in range(index + 1, total + 1, workers)
    ]
