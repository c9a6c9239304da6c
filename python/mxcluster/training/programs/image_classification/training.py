"""Train a network as one worker: write events and checkpoints, report the final accuracy."""

import math
import os
import random
import time
from typing import Iterator, List, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np

from mxcluster import batch_sizes, events, exit_codes
from mxcluster.datasets import DATASETS
from mxcluster.errors import BadInput
from mxcluster.model.events import Batch, End, Epoch, Start
from mxcluster.model.job_knobs import DEADLINE
from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.node import quota
from mxcluster.node.mxnet_types import Context, Symbol
from mxcluster.training import pulse_file
from mxcluster.training.programs.image_classification import (
    balance,
    checkpoint,
    data,
    deadline,
    evaluations,
    gradients,
    lines,
    members,
    meter,
    networks,
    optimizer,
    pace,
    shard,
    validation,
)
from mxcluster.training.programs.image_classification.data import batches
from mxcluster.training.programs.image_classification.sizes import sizes_of
from mxcluster.training.programs.image_classification.step import READERS, Loaded, Step, loaded

Shape = Tuple[int, ...]

REPORT_SECONDS = 1.0  # least seconds between two `batch` events


def run(args: ProgramArguments) -> None:
    """Train with the options `args`, the arguments of the program.

    Raises BadInput for invalid arguments or data.
    """
    Training(args, contexts_of(args.gpus)).run()


def contexts_of(gpus: Sequence[int]) -> List[Context]:
    """Return MXNet's contexts for the GPU numbers `gpus`, or [mx.cpu()] for [].

    Raises BadInput if MXNet cannot use a GPU.
    """
    contexts = [mx.gpu(number) for number in gpus] or [mx.cpu()]
    for context in contexts:
        try:
            mx.nd.zeros((1,), context).wait_to_read()
        except mx.base.MXNetError:
            raise BadInput(
                "gpus: MXNet %s cannot use %s on this host. Give the numbers of other GPUs, or "
                "use no GPU, to train on the CPU" % (mx.__version__, context)
            ) from None
    return contexts


def set_seed(seed: int) -> None:
    """Seed the random number generators of Python, numpy and MXNet with `seed`."""
    random.seed(seed)
    np.random.seed(seed)
    mx.random.seed(seed)


class Training:
    """The training of a network by one worker.

    ``batch_size`` is the worker's current batch size, with balance=deadline its planned samples of
    a step. ``bound`` is the number of samples for which the Module is bound.

    Raises BadInput for invalid arguments or data.

    Args:
        args: the arguments of the program.
        contexts: MXNet's contexts.
    """

    def __init__(self, args: ProgramArguments, contexts: List[Context]) -> None:
        set_seed(args.seed)
        self.args, self.log = args, events.from_env()
        symbol = networks.symbol(args.network, DATASETS[args.data].classes)
        folder = args.data_dir or os.environ.get("MXCLUSTER_DATA_DIR", "")
        self.train, self.validation = data.load(args.data, folder, args.num_examples, args.seed)
        samples = data.number_of(self.train, args.data, args.num_examples)
        channels, side = DATASETS[args.data].shape[:2]
        self.side = networks.picture_side(args.network, symbol, channels, side)
        self.shape = (channels, self.side, self.side)
        self.kv = mx.kvstore.create(args.kv)
        self.shards = shard.Shards(
            os.environ,
            args.kv,
            self.kv.num_workers,
            self.kv.rank,
            samples,
            args.data_allocator,
        )
        together: Optional[members.Members] = None
        sizes = None
        if args.balance == "none":
            self.batch_size = args.batch_size
            self.share = self.shards.of_batch_size(args.batch_size)
        else:
            networks.check_loss(symbol)
            sizes = sizes_of(args, self.shards)
            self.batch_size = sizes.first[self.shards.index]
            self.share = self._share(sizes.first)
            if args.balance == DEADLINE:
                together = members.Members(self.shards, sizes, args.batch_size, args.progress)
        self.bound = together.own_small if together else self.batch_size
        self.steps = self.samples = 0
        self.epochs = args.num_epochs
        self.steps_in_all = (args.num_epochs - args.model_load_epoch) * self.share.batches
        if args.measured:
            self.steps_in_all = args.warm_up + args.measured
            self.epochs = args.model_load_epoch + -(-self.steps_in_all // self.share.batches)
        self._bind(symbol, contexts)
        slowdown = pace.slowdown_of(args, self.shards.index)
        self.pace = pace.Pace(self.module, slowdown, args.step_ms / 1000 / args.batch_size)
        self.evaluations = evaluations.Evaluations(
            *(self.module, args.evaluations, self.steps_in_all),
            *(self.kv.num_workers, self.shards.index, mx.cpu()),
        )
        limit, waits = quota.tightest(), args.measure_waits or together is not None
        self.meter = meter.Meter(self.module, args.warm_up, args.measured, waits, limit=limit)
        self.balance: Union[balance.Balance, members.Members, None] = together
        self.measured: Optional[balance.Balance] = None  # measures steps, with balance=batch
        self.deadline: Optional[deadline.Deadline] = None
        if together:
            self.deadline = self._by_deadline(together)
        elif sizes:
            parameters = len(self.module._param_names)
            self.balance = self.measured = balance.Balance(self.kv, parameters, self.shards, sizes)
        self.use = quota.Steps(limit if self.measured else None)
        self.saver = checkpoint.saver_of(args, self.module, self.kv, self.shards.index)

    def _share(self, sizes: Sequence[int]) -> shard.Work:
        """Return the epoch of this worker with the batch `sizes` of all workers."""
        share = self.shards.of_sizes(sizes)
        # With balance=deadline a worker goes on in its shard, and fills up no batch.
        return share._replace(repeated=0) if self.args.balance == DEADLINE else share

    def _bind(self, symbol: Symbol, contexts: List[Context]) -> None:
        """Make the Module of the network `symbol`, with weights and an optimizer."""
        args, compression = self.args, None
        if args.compression != "none":
            compression = {"type": args.compression, "threshold": args.compression_threshold}
        # The plan has checked `work_load`. With None MXNet gives all GPUs equal parts.
        self.module = mx.mod.Module(
            symbol,
            context=contexts,
            work_load_list=args.work_load or None,
            compression_params=compression,
        )
        inputs = self._shapes(self.bound)
        # With balance=deadline a worker adds up the gradients of several passes.
        adds = gradients.requests(symbol, ["data", "softmax_label"])
        self.module.bind(*inputs, grad_req=adds if args.balance == DEADLINE else "write")
        # All workers start from the same seed. In a distributed job the first pull gives all of
        # them rank 0's weights.
        self.module.init_params(mx.init.Xavier())
        if args.model_load_file:
            checkpoint.load(args.model_load_file, self.module)
        # From here on random numbers (dropout) differ between workers.
        set_seed((args.seed + 1 + self.shards.index) % 2**31)
        params = optimizer.parameters(args, self.share.updates, self.kv.num_workers)
        self.module.init_optimizer(kvstore=self.kv, optimizer="sgd", optimizer_params=params)

    def _by_deadline(self, those: members.Members) -> deadline.Deadline:
        """Return the steps of this worker with balance=deadline."""

        def read(indices: np.ndarray, seed: List[int]) -> Tuple[np.ndarray, np.ndarray]:
            return self.train.read(indices, self.side, np.random.RandomState(seed))

        parts = deadline.Worker(
            self.module, self.kv, self.shards, self.pace, self.meter, self.log, read, self._resize
        )
        return deadline.Deadline(parts, those, self.args)

    def _resize(self, size: int) -> None:
        """Bind the Module to batches of `size` samples.

        The weights, the gradients and the memory of the first binding stay in use.
        """
        if size != self.bound:
            self.bound = size
            self.module.reshape(*self._shapes(size))

    def _shapes(self, size: int) -> Tuple[List[Tuple[str, Shape]], List[Tuple[str, Shape]]]:
        """Return (data, labels), the shapes of batches of `size` samples for `Module.bind`."""
        return [("data", (size,) + self.shape)], [("softmax_label", (size,))]

    def run(self) -> None:
        """Train all epochs, save checkpoints, and report the final accuracy in events and log.

        With `measured`, the method trains only the warm-up and the measured batches, without
        validation and checkpoints. Batch sizes still change between two epochs. The field `seconds`
        of the event `end` is the wall time, validation included.
        """
        args = self.args
        self._report_start()
        began = time.monotonic()
        epoch = args.model_load_epoch
        while not (self.meter.is_complete if args.measured else epoch == self.epochs):
            seconds = self._train(epoch)
            if not args.measured:
                self._end_epoch(epoch, seconds)
            epoch += 1
            if args.measured and not self.meter.is_complete:
                self._adapt(epoch)
        seconds = time.monotonic() - began
        checkpoint.pull_newest(args.kv, self.kv, self.module)
        self._report_times()
        accuracy = None
        if not args.measured:
            accuracy = self._accuracy()
            self._save(args.num_epochs, accuracy)
        speed = self.samples / seconds
        self.log.write(
            End(
                accuracy=accuracy,
                samples=self.samples,
                seconds=seconds,
                samples_per_s=speed,
                steps=self.pace.passes if self.pace.pads else None,
                late_steps=self.pace.late if self.pace.pads else None,
            )
        )
        for evaluation in self.evaluations.finish(self._accuracy):
            self.log.write(evaluation)
        if accuracy is None:
            say("end: %d batches in %.1f s, %.1f samples/s" % (self.steps, seconds, speed))
        else:
            say(
                "end: validation accuracy %.4f, %d samples in %.1f s, %.1f samples/s"
                % (accuracy, self.samples, seconds, speed)
            )

    def _report_times(self) -> None:
        """Write the events about the times of steps, and a note if emulated passes were late."""
        for event in self.meter.reports():
            self.log.write(event)
        if self.pace.late > 0.01 * self.pace.passes:
            events.note(
                "%d of %d steps took longer than step_ms and slowdown allow, so this worker was "
                "slower than the emulated machine: use a larger step_ms"
                % (self.pace.late, self.pace.passes)
            )

    def _report_start(self) -> None:
        """Write the event `start` and a line about the share of this worker."""
        args, share, index = self.args, self.share, self.shards.index
        self.log.write(
            Start(
                epochs=self.epochs,
                batches=share.batches,
                batch_size=self.batch_size,
                small_batch=self.bound if self.deadline else None,
                samples_in_share=share.end - share.begin,
                repeated=share.repeated,
                slowdown=args.slowdown,
                step_ms=args.step_ms,
            )
        )
        say(lines.start(args, share, index, self.side, self.batch_size))
        note = lines.small_share(args, share, index, self.batch_size)
        if note:
            events.note(note)
        if args.measured or args.measure_waits:
            self.log.write(meter.machine(len(args.gpus)))

    def _end_epoch(self, epoch: int, seconds: float) -> None:
        """Report the epoch, which took `seconds`. Before a further epoch save a checkpoint.

        With `evaluations` the report has no accuracy, because a worker waits for its computation.
        """
        accuracy = None if self.args.evaluations else self._accuracy()
        self.log.write(
            Epoch(
                epoch=epoch,
                accuracy=accuracy,
                samples=self.samples,
                seconds=seconds,
                batch_size=self.batch_size,
            )
        )
        known = "" if accuracy is None else "validation accuracy %.4f, " % accuracy
        say("epoch %d: %strained %.2f s" % (epoch, known, seconds))
        if epoch + 1 < self.args.num_epochs:
            self._adapt(epoch + 1)
            self._save(epoch + 1, accuracy)

    def _adapt(self, epoch: int) -> None:
        """Fit the batch sizes and shards to the workers' speeds, from the epoch `epoch` on.

        All workers that wait for each other must call this method. Without balanced batches the
        method does nothing.
        """
        if not self.balance or not self.balance.adapt():
            return
        index = self.shards.index
        event = self.balance.event(epoch)
        if index == self.balance.members[0]:
            self.log.write(event)
        self.share = self._share(self.balance.sizes)
        self.batch_size = self.balance.sizes[index]
        say(lines.change(self.args, self.share, event))
        if self.deadline:
            self.deadline.resize()
        else:
            self._resize(self.batch_size)

    def _train(self, epoch: int) -> float:
        """Train the epoch `epoch` (from 0). Return the seconds of the epoch."""
        steps = self.deadline.steps(epoch, self.share) if self.deadline else self._steps(epoch)
        began = reported = time.monotonic()
        reported_samples, reported_wait = self.samples, self.meter.data_waited
        self.meter.begin()
        self.use.ended()  # A validation is no step.
        for number, step in enumerate(steps):
            self.steps += 1
            self.samples += step.samples
            # Without this wait Python would queue batches faster than MXNet trains them.
            self.module.get_outputs()[0].wait_to_read()
            self.meter.end_of_batch(step.samples)
            if self.measured:
                self.measured.speed.add_quota(self.use.ended())
            if self.deadline:  # Its step ends when the weights have arrived.
                self._copy_weights(epoch + step.done)
            pulse_file.beat()
            now = time.monotonic()
            is_last = step.done >= 1 or self.meter.is_complete
            if is_last or now - reported >= REPORT_SECONDS:
                seconds = max(now - reported, 1e-9)
                waited = min(1.0, (self.meter.data_waited - reported_wait) / seconds)
                self._report(
                    *(epoch, number, step, (self.samples - reported_samples) / seconds, waited)
                )
                reported, reported_samples = now, self.samples
                reported_wait = self.meter.data_waited
            if self.meter.is_complete:
                break
        mx.nd.waitall()
        self.meter.lap("push_pull")  # the pull of the last step
        self._copy_weights(epoch + 1)
        return time.monotonic() - began

    def _steps(self, epoch: int) -> Iterator[Step]:
        """Train the epoch `epoch` with one batch a step, and yield each step."""
        share, seed = self.share, [self.args.seed, epoch, self.shards.index]
        order = batches.order(share.begin, share.end, share.batches, self.batch_size, seed)
        sizes, measured = self.measured, batch_sizes.measured_steps(share.batches)

        def read(number: int) -> Loaded:
            random = np.random.RandomState(seed + [number])
            return loaded(*self.train.read(order[number], self.side, random))

        for number, (batch, labels) in enumerate(
            self.meter.timed(batches.ahead(read, range(share.batches), READERS))
        ):
            self.meter.wait_for_weights()
            self._copy_weights(epoch + number / share.batches)
            is_measured = sizes and number in measured
            if self.pace.pads or is_measured:
                taken = self.pace.run(batch, len(labels))
                if sizes and is_measured:
                    sizes.speed.add(taken)
            else:
                self.module.forward_backward(batch)
            self.meter.wait_for_gradients()
            self.module.update()
            self.meter.updated()
            yield Step(len(labels), labels, None, (number + 1) / share.batches)

    def _report(self, epoch: int, number: int, step: Step, speed: float, data_wait: float) -> None:
        """Write the event `batch`, with the loss and accuracy of this step alone.

        An evaluation of all batches would take too much time.

        Args:
            epoch: the number of the epoch, from 0.
            number: the number of the batch in the epoch, from 0.
            step: the step.
            speed: samples per second.
            data_wait: the part of the time in which the worker waited for samples, 0 to 1.
        """
        labels, chances = step.labels, step.chances
        if chances is None:
            chances = self.module.get_outputs()[0].asnumpy()
        loss = float(
            -np.log(np.maximum(chances[np.arange(len(labels)), labels.astype(int)], 1e-12)).mean()
        )
        accuracy = float((chances.argmax(axis=1) == labels).mean())
        self._refuse_nan(loss, epoch, number)
        self.log.write(
            Batch(
                epoch=epoch,
                batch=number,
                step=self.steps,
                samples=self.samples,
                batch_size=step.samples,
                loss=loss,
                train_accuracy=accuracy,
                samples_per_s=speed,
                done=self._done(epoch + step.done),
                data_wait=round(data_wait, 4),
                deadline_s=self.deadline.seconds if self.deadline else None,
            )
        )
        if self.args.measure_waits or self.deadline:
            self.log.write(self.meter.step_times(self.samples))
        say(
            "epoch %d batch %d of %d: loss %.4f, train accuracy %.4f, %.1f samples/s"
            % (epoch, number, self.share.batches, loss, accuracy, speed)
        )

    def _copy_weights(self, epochs: float) -> None:
        """Copy the weights after `epochs` epochs if an evaluation of them is due.

        With balance=deadline the number of steps differs from the planned one, so the trained part
        decides.
        """
        self.evaluations.at(round(self._done(epochs) * self.steps_in_all), self.samples)

    def _done(self, epochs: float) -> float:
        """Return the trained part of the training, 0 to 1, after `epochs` epochs."""
        if self.args.measured:
            return self.steps / self.steps_in_all
        first = self.args.model_load_epoch
        return (epochs - first) / (self.epochs - first)

    def _refuse_nan(self, loss: float, epoch: int, number: int) -> None:
        """End the process with the exit code NOT_A_NUMBER if `loss` is NaN.

        With on_nan=continue the method does nothing. `epoch` and `number` name the batch in the
        message.
        """
        if math.isnan(loss) and self.args.on_nan == "stop":
            say(
                "the loss became NaN in epoch %d, batch %d, so the weights are useless. "
                "The learning rate may be too large: use an lr below %g. To continue after a NaN, "
                "use -e on_nan=continue" % (epoch, number, self.args.lr)
            )
            raise SystemExit(exit_codes.NOT_A_NUMBER)

    def _accuracy(self) -> float:
        """Return the accuracy of the present weights on the validation samples (0 to 1)."""
        if not self.deadline:
            return validation.accuracy(self.module, self.validation, self.side, self.batch_size)
        size = min(self.args.batch_size, self.deadline.most)  # Small batches would take long.
        self._resize(size)
        found = validation.accuracy(self.module, self.validation, self.side, size)
        self.deadline.resize()
        return found

    def _save(self, epochs: int, accuracy: Optional[float]) -> None:
        if self.args.savemodel and self.saver:
            sizes = self.balance
            # Worker 0 does not have the sizes of other groups.
            known = sizes.sizes if sizes and sizes.is_of_all else None
            progress = self.deadline.progress() if self.deadline else None
            self.saver.save(epochs, known, progress, accuracy)


def say(text: str) -> None:
    """Print `text` to the log as a line, and flush the log."""
    print(text, flush=True)
