"""Train the steps of a worker by a common deadline (`balance=deadline`).

`mxcluster.deadline` has the rules. This module runs them on MXNet's Module and kv-store.
"""

from typing import Callable, Generator, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from mxcluster import deadline
from mxcluster.events import EventLog, note
from mxcluster.model.checkpoint import Progress
from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.node.mxnet_types import KVStore, Module
from mxcluster.training.kvstore.assigned_key import AssignedKey
from mxcluster.training.programs.image_classification.data import batches
from mxcluster.training.programs.image_classification.gradients import Gradients
from mxcluster.training.programs.image_classification.members import Members
from mxcluster.training.programs.image_classification.meter import Meter, wait
from mxcluster.training.programs.image_classification.pace import Pace
from mxcluster.training.programs.image_classification.shard import Shards, Work
from mxcluster.training.programs.image_classification.step import (
    READERS,
    Loaded,
    Read,
    Step,
    loaded,
)

Reader = Generator[Loaded, None, None]


class Worker(NamedTuple):
    """The parts of a worker's training that its steps use."""

    module: Module
    kv: KVStore
    shards: Shards
    pace: Pace
    meter: Meter
    log: EventLog
    read: Read
    resize: Callable[[int], None]  # binds the Module to small batches of another size


class Deadline(object):
    """The steps of this worker. All workers of the job must make a Deadline.

    Args:
        worker: the parts of the training.
        members: the workers that wait for each other.
        args: the arguments of the program.
    """

    def __init__(self, worker: Worker, members: Members, args: ProgramArguments) -> None:
        self._worker, self._members, self._seed = worker, members, args.seed
        speed = members.state.speeds[members.place]
        self._cost = deadline.Cost(1 / speed if speed else 0.0)
        # A resumed job knows its speeds, so its small batches fit already.
        self._fits = bool(speed)
        shards, parameters = worker.shards, len(worker.module._param_names)
        self._key = AssignedKey(worker.kv, parameters, shards.workers, shards.index, each=2)
        self._gradients = Gradients(worker.module)
        self._steps, self._warned = 0, False
        self._warn()

    @property
    def seconds(self) -> Optional[float]:
        """The deadline T of the next step, None before all members know their speeds."""
        return self._members.state.seconds

    @property
    def most(self) -> int:
        """The largest batch that this worker may take, in samples."""
        return self._members.own_most

    def progress(self) -> Optional[Progress]:
        """Return the state for a checkpoint, as `Members.progress` does."""
        return self._members.progress()

    def steps(self, epoch: int, share: Work) -> Iterator[Step]:
        """Train an epoch, and yield each step.

        The epoch ends at the step at which all members together have trained the samples of an
        epoch. All of them know this step, because they know all counts.

        Args: `epoch` its number, from 0; `share` the present shard of this worker.
        """
        counted, members = 0, self._members
        reader = self._reader(share)
        try:
            while counted < members.of_epoch:
                samples, chances, labels, total = self._step(reader)
                counted += total
                self._steps += 1
                if self._steps == deadline.FIRST_STEPS and not self._fits and members.fit_small():
                    reader.close()
                    self.resize()
                    reader = self._reader(share)
                    if members.place == 0:
                        self._worker.log.write(members.event(epoch))
                yield Step(samples, labels, chances, min(1.0, counted / members.of_epoch))
        finally:
            reader.close()

    def resize(self) -> None:
        """Bind the Module to the present size of this worker's small batches."""
        self._worker.resize(self._members.own_small)
        self._cost.resize()
        self._gradients.clear()
        self._warn()

    def _warn(self) -> None:
        """Write a note, once, if the small batches of this worker are too small for BatchNorm."""
        size = self._members.own_small
        if size < deadline.FEW and self._gradients.has_batch_norm and not self._warned:
            self._warned = True
            note(
                "BatchNorm takes mean and variance of small batches of %d samples: set "
                "least_batch=%d, and a larger batch_size if steps become too long"
                % (size, deadline.FEW)
            )

    def _reader(self, share: Work) -> Reader:
        """Return the small batches of this worker from its present place in its shard on."""
        members, shards = self._members, self._worker.shards
        walk, size = members.walks[members.place], members.own_small
        order = batches.walk(share.begin, share.end, size, walk, self._seed, shards.index)

        def read(item: Tuple[int, np.ndarray]) -> Loaded:
            number, indices = item
            seed = [self._seed, walk.number, shards.index, walk.position + number * size]
            return loaded(*self._worker.read(indices, seed))

        return self._worker.meter.timed(batches.ahead(read, enumerate(order), READERS))

    def _step(self, reader: Reader) -> Tuple[int, np.ndarray, np.ndarray, int]:
        """Train a step.

        Returns the samples of this worker, the chances of the classes of its samples and their
        labels, and the samples of all members.
        """
        worker, members, now = self._worker, self._members, self._worker.pace.now
        # The report of the step before, and the copy of weights for an evaluation.
        worker.meter.lap("data")
        began, read_before = now(), worker.meter.data_waited
        samples, chances, labels = self._compute(reader, began)
        worker.meter.wait_for_gradients()
        worker.meter.move("compute", "data", worker.meter.data_waited - read_before)
        ended = now()
        told = self._key.pull()
        exchanged = now()
        counts = [int(told[member][0]) for member in members.members]
        per_sample = [told[member][1] for member in members.members]
        # The servers divide by of_step, so that the update is the mean over all samples.
        self._gradients.close(members.of_step / sum(counts))
        worker.module.update()
        self._gradients.clear()
        wait(worker.module._exec_group.param_arrays)
        worker.meter.updated()
        pulled = now()
        members.heard(counts, per_sample)
        self._divide(
            ended, exchanged, pulled, deadline.remainder(counts, per_sample, members.place)
        )
        return samples, np.concatenate(chances), np.concatenate(labels), sum(counts)

    def _divide(self, ended: float, exchanged: float, pulled: float, remainder: float) -> None:
        """Divide the wait after the last pass of a step into its parts.

        Args: `ended` the time of the end of the last pass; `exchanged` that of the arrival of all
        counts; `pulled` that of the weights; `remainder` the seconds until the last worker's end.
        """
        remainder = min(pulled - ended, remainder)
        exchange = exchanged - ended - remainder
        self._worker.meter.move("push_pull", "remainder", remainder)
        self._worker.meter.move("push_pull", "exchange", exchange)

    def _compute(
        self, reader: Reader, began: float
    ) -> Tuple[int, List[np.ndarray], List[np.ndarray]]:
        """Train small batches until the deadline, and tell the members their number.

        The worker tells it before its last small batch. If its small batches have become slower, it
        may find no time for another one, and tells the number afterwards.

        Returns the samples, the chances of the classes and the labels.
        """
        worker, size = self._worker, self._members.own_small
        done, told = 0, False
        chances: List[np.ndarray] = []
        labels: List[np.ndarray] = []
        while not told and self._goes_on(done, worker.pace.now() - began):
            start = worker.pace.now()
            if not self._goes_on(done + 1, start - began + self._cost.of(size)):
                self._key.push((done + 1) * size, self._cost.take())
                told = True
            batch, of_batch = next(reader)
            worker.pace.run(batch, size)
            self._gradients.add_up()
            chances.append(worker.module.get_outputs()[0].asnumpy())
            labels.append(of_batch)
            self._cost.add(worker.pace.now() - start, size)
            done += 1
        if not told:
            self._key.push(done * size, self._cost.take())
        return done * size, chances, labels

    def _goes_on(self, done: int, elapsed: float) -> bool:
        members = self._members
        expected = self._cost.of(members.own_small)
        seconds = members.state.seconds
        return deadline.goes_on(done, elapsed, expected, seconds, members.planned_batches)
