"""Measure the batches of one worker, and the time in which the worker waits for weights."""

import platform
import time
from typing import Callable, Dict, Generator, Iterable, List, Optional, Sequence, TypeVar

import numpy as np

from mxcluster.model.events import Event, Machine, Measured, StepTimes, Waits
from mxcluster.node import gpus as node_gpus
from mxcluster.node.hardware import CPUINFO, cpu
from mxcluster.node.mxnet_types import Module, NDArray
from mxcluster.node.quota import Quota

B = TypeVar("B")
PARTS = ("data", "compute", "remainder", "exchange", "push_pull", "quota")  # fields of StepTimes


class Meter(object):
    """Measures the time of each batch that a worker trains.

    The time of a batch begins at the end of the previous batch, or at `begin`. A batch ends when
    MXNet has computed the outputs of the network. Pushes and pulls of the batch may still run. The
    sum of these times is the time of the training, because the times do not overlap.

    A worker waits while its store pushes the gradients, and before a step until all weights have
    arrived. The network, the servers and the other workers cause these waits.

    The measurement of waits changes the training. A forward pass then starts only when all weights
    have arrived. The pushes start only when MXNet has computed all gradients. Without `waits` MXNet
    starts each layer and each push as soon as the arrays of this layer are ready.

    With `waits` the meter also divides the time of the batches into the parts of `StepTimes`. `lap`
    ends a part.

    Args:
        module: the bound Module that the worker trains.
        warm_up: the number of first batches that the meter skips.
        measured: the number of batches to measure after the warm-up, 0 for none.
        waits: True to measure the waiting time.
        clock: a function that returns seconds.
        limit: the quota of this process, None without one.
    """

    def __init__(
        self,
        module: Module,
        warm_up: int = 0,
        measured: int = 0,
        waits: bool = False,
        clock: Callable[[], float] = time.monotonic,
        limit: Optional[Quota] = None,
    ) -> None:
        self._module, self._warm_up, self._measured = module, warm_up, measured
        self._waits, self._clock = waits, clock
        self._batches = 0
        self._seconds: List[float] = []
        self._samples = 0  # of the measured batches
        self._last = self._since = 0.0
        self._parts: Dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._lap, self._limit, self._stopped = 0.0, limit, 0.0
        self._trained = self._waited = 0.0
        self.data_waited = 0.0  # seconds in which the worker waited for samples

    @property
    def is_complete(self) -> bool:
        """True after the last batch that the meter measures. False if `measured` is 0."""
        return bool(self._measured) and self._batches >= self._warm_up + self._measured

    def timed(self, read: Iterable[B]) -> Generator[B, None, None]:
        """Yield the batches of `read`, and count the time until each of them in `data_waited`."""
        waiting = iter(read)
        while True:
            began = self._clock()
            try:
                batch = next(waiting)
            except StopIteration:
                return
            finally:
                self.data_waited += self._clock() - began
            yield batch

    def begin(self) -> None:
        """Start the clock of an epoch. The meter skips the time since the last batch."""
        self._last = self._lap = self._clock()
        self._stopped = self._throttled()

    def lap(self, part: str) -> None:
        """Count the time since the last lap as `part`, one of PARTS, if the meter measures waits.

        The time in which the quota stopped this process counts as the part `quota`.
        """
        if self._waits:
            now, stopped = self._clock(), self._throttled()
            seconds = now - self._lap
            quota = min(seconds, max(0.0, stopped - self._stopped))
            self._lap, self._stopped = now, stopped
            self._parts["quota"] += quota
            self._parts[part] += seconds - quota

    def move(self, source: str, target: str, seconds: float) -> None:
        """Count `seconds` of the part `source` as the part `target` instead."""
        seconds = max(0.0, min(seconds, self._parts[source]))
        self._parts[source] -= seconds
        self._parts[target] += seconds

    def _throttled(self) -> float:
        use = self._limit.use() if self._waits and self._limit else None
        return use.throttled if use else 0.0

    def wait_for_weights(self) -> None:
        """Wait for all weights and count the time, if the meter measures waits.

        Call this method before a forward pass.
        """
        if self._waits:
            began = self._clock()
            self.lap("data")
            wait(self._module._exec_group.param_arrays)
            self._waited += self._clock() - began
            self.lap("push_pull")

    def wait_for_gradients(self) -> None:
        """Wait for all gradients, if the meter measures waits.

        Call this method after a backward pass.
        """
        if self._waits:
            wait([self._module.get_outputs()] + list(self._module._exec_group.grad_arrays))
            self._since = self._clock()
            self.lap("compute")

    def updated(self) -> None:
        """Count the time since `wait_for_gradients`, if the meter measures waits.

        Call this method after an update.
        """
        if self._waits:
            self._waited += self._clock() - self._since
            self.lap("push_pull")

    def end_of_batch(self, samples: int) -> None:
        """Record the end of a batch of `samples` samples, once MXNet has computed the outputs."""
        self.lap("compute")
        now = self._clock()
        seconds, self._last = now - self._last, now
        self._batches += 1
        self._trained += seconds
        if self._measured and self._batches > self._warm_up:
            self._seconds.append(seconds)
            self._samples += samples

    def step_times(self, samples: int) -> StepTimes:
        """Return the parts of all batches so far; `samples` is the number of trained samples."""
        parts = {name: round(seconds, 6) for name, seconds in self._parts.items()}
        empty = StepTimes(steps=self._batches, samples=samples, data=0, compute=0, push_pull=0)
        return empty.replaced(**parts)

    def reports(self) -> List[Event]:
        """Return the events `Measured` and `Waits` of this worker.

        Without measured batches the list has no `Measured`. Without a measured waiting time the
        list has no `Waits`.
        """
        found: List[Event] = []
        if self._seconds:
            found.append(measured(self._seconds, self._samples, self._warm_up))
        if self._waits and self._trained:
            found.append(Waits(seconds=round(self._trained, 4), waited_s=round(self._waited, 4)))
        return found


def measured(seconds: Sequence[float], samples: int, warm_up: int) -> Measured:
    """Return the event of batches that took `seconds`.

    median_s, p10_s and p90_s are percentiles of `seconds`. samples_per_s is the speed over all
    these batches. With balance=deadline the batches differ, and batch_size is their rounded mean.

    Args:
        seconds: the time of each batch.
        samples: the number of samples in all these batches.
        warm_up: the number of batches before these batches.
    """
    p10, median, p90 = np.percentile(seconds, [10, 50, 90])
    total = sum(seconds)
    return Measured(
        batches=len(seconds),
        batch_size=max(1, round(samples / len(seconds))),
        warm_up=warm_up,
        seconds=round(total, 6),
        median_s=float(median),
        p10_s=float(p10),
        p90_s=float(p90),
        samples_per_s=samples / max(total, 1e-9),
    )


def machine(gpus: int, cpuinfo: str = CPUINFO) -> Machine:
    """Return the software versions of this worker, and the names of its CPU and GPUs.

    Args:
        gpus: the number of GPUs of this worker. With 0 the function does not run nvidia-smi.
        cpuinfo: the path of the kernel's file.
    """
    import mxnet as mx

    name, cores = cpu(cpuinfo)
    return Machine(
        mxnet=mx.__version__,
        numpy=np.__version__,
        python=platform.python_version(),
        cpu=name,
        cores=cores,
        gpus=sorted({gpu.name for gpu in node_gpus.listed()}) if gpus else [],
    )


def wait(lists: Sequence[Optional[Sequence[Optional[NDArray]]]]) -> None:
    """Wait until all NDArrays in `lists` are computed.

    A list or an array may be None.
    """
    for arrays in lists:
        for array in arrays or ():
            if array is not None:
                array.wait_to_read()
