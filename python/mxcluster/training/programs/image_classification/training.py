"""Train a network as one worker: write events and checkpoints, report the final accuracy."""

import math
import os
import random
import time
from typing import List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from mxcluster import batch_sizes, checkpoints, events, exit_codes
from mxcluster.datasets import DATASETS
from mxcluster.errors import BadInput
from mxcluster.model.checkpoint import CheckpointManifest
from mxcluster.model.events import Balance, Batch, End, Epoch, Start
from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.node import quota
from mxcluster.node.mxnet_types import Context, Parameters, Symbol
from mxcluster.training import pulse_file
from mxcluster.training.programs.image_classification import (
    balance,
    checkpoint,
    data,
    meter,
    networks,
    pace,
    shard,
)
from mxcluster.training.programs.image_classification.data import batches

Shape = Tuple[int, ...]

READERS = 4  # threads that read the next batches
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
    """The training of a network by one worker. ``batch_size`` is the worker's current batch size.

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
        samples = args.num_examples or len(self.train)
        if samples > len(self.train):
            raise BadInput(
                "num_examples=%d: %s has only %d training samples. Use at most %d, or 0 for all "
                "samples" % (samples, args.data, len(self.train), len(self.train))
            )
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
        sizes = None
        if args.balance == "none":
            self.batch_size = args.batch_size
            self.share = self.shards.of_batch_size(args.batch_size)
        else:
            networks.check_loss(symbol)
            sizes = balance.sizes_of(args, self.shards)
            self.batch_size = sizes.first[self.shards.index]
            self.share = self.shards.of_sizes(sizes.first)
        self.steps = self.samples = 0
        self.epochs = args.num_epochs
        self.steps_in_all = (args.num_epochs - args.model_load_epoch) * self.share.batches
        if args.measured:
            self.steps_in_all = args.warm_up + args.measured
            self.epochs = args.model_load_epoch + -(-self.steps_in_all // self.share.batches)
        self._bind(symbol, contexts)
        slowdown = pace.slowdown_of(args, self.shards.index)
        self.pace = pace.Pace(self.module, slowdown, args.step_ms / 1000 / args.batch_size)
        self.balance: Optional[balance.Balance] = None
        if sizes:
            parameters = len(self.module._param_names)
            self.balance = balance.Balance(self.kv, parameters, self.shards, sizes)
        limit = quota.tightest()
        self.use = quota.Steps(limit if sizes else None)
        self.meter = meter.Meter(
            self.module, args.warm_up, args.measured, args.measure_waits, limit=limit
        )
        self.saver = self._saver()

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
        self.module.bind(*self._shapes())
        # All workers start from the same seed. In a distributed job the first pull gives all of
        # them rank 0's weights.
        self.module.init_params(mx.init.Xavier())
        if args.model_load_file:
            checkpoint.load(args.model_load_file, self.module)
        # From here on random numbers (dropout) differ between workers.
        set_seed((args.seed + 1 + self.shards.index) % 2**31)
        self.module.init_optimizer(
            kvstore=self.kv, optimizer="sgd", optimizer_params=self._optimizer()
        )

    def _shapes(self) -> Tuple[List[Tuple[str, Shape]], List[Tuple[str, Shape]]]:
        """Return (data, labels), the shapes of this worker's batches for `Module.bind`."""
        size = self.batch_size
        return [("data", (size,) + self.shape)], [("softmax_label", (size,))]

    def _optimizer(self) -> Parameters:
        """Return the parameters of SGD.

        A learning rate schedule counts updates as shard.updates() does.
        """
        args = self.args
        params = {"learning_rate": args.lr, "momentum": 0.9, "wd": 1e-4}
        if args.balance != "none":
            # Module would divide by this worker's batch size times the number of workers.
            params["rescale_grad"] = 1.0 / (args.batch_size * self.kv.num_workers)
        if args.lr_factor < 1:
            before, drops = shard.lr_drops(
                self.share.updates, args.lr_factor_epoch, args.model_load_epoch, args.num_epochs
            )
            params["learning_rate"] *= args.lr_factor**before
            if drops:
                params["lr_scheduler"] = mx.lr_scheduler.MultiFactorScheduler(drops, args.lr_factor)
        return params

    def run(self) -> None:
        """Train all epochs, save checkpoints, and report the final accuracy in events and log.

        With `measured`, the method trains only the warm-up and the measured batches, without
        validation and checkpoints. Batch sizes still change between two epochs. The field `seconds`
        of the event `end` is the wall time, validation included.
        """
        args = self.args
        self._report_start()
        began = time.monotonic()
        for epoch in range(args.model_load_epoch, self.epochs):
            seconds = self._train(epoch)
            if not args.measured:
                self._end_epoch(epoch, seconds)
            elif epoch + 1 < self.epochs:
                self._adapt(epoch + 1)
        seconds = time.monotonic() - began
        self._pull_final()
        for event in self.meter.reports():
            self.log.write(event)
        if self.pace.late > 0.01 * self.steps:
            events.note(
                "%d of %d steps took longer than step_ms and slowdown allow, so this worker was "
                "slower than the emulated machine: use a larger step_ms"
                % (self.pace.late, self.steps)
            )
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
                steps=self.steps if self.pace.pads else None,
                late_steps=self.pace.late if self.pace.pads else None,
            )
        )
        if accuracy is None:
            say("end: %d batches in %.1f s, %.1f samples/s" % (self.steps, seconds, speed))
        else:
            say(
                "end: validation accuracy %.4f, %d samples in %.1f s, %.1f samples/s"
                % (accuracy, self.samples, seconds, speed)
            )

    def _report_start(self) -> None:
        """Write the event `start` and a line about the share of this worker."""
        args, share, index = self.args, self.share, self.shards.index
        samples = share.end - share.begin
        self.log.write(
            Start(
                epochs=self.epochs,
                batches=share.batches,
                batch_size=self.batch_size,
                samples_in_share=samples,
                repeated=share.repeated,
                slowdown=args.slowdown,
                step_ms=args.step_ms,
            )
        )
        say(
            "worker %d trains %s on %s with images of %d x %d pixels. The share of this worker is "
            "samples %d to %d. An epoch has %d batches of %d samples, with %d repeated samples"
            % (
                *(index, args.network, args.data, self.side, self.side),
                *(share.begin, share.end - 1, share.batches, self.batch_size, share.repeated),
            )
        )
        if samples < self.batch_size:
            events.note(
                "batch_size %d is larger than the share of worker %d (%d samples), so every batch "
                "repeats samples: use a smaller batch_size" % (self.batch_size, index, samples)
            )
        if args.measured or args.measure_waits:
            self.log.write(meter.machine(len(args.gpus)))

    def _end_epoch(self, epoch: int, seconds: float) -> None:
        """Report the epoch, which took `seconds`. Before a further epoch save a checkpoint."""
        accuracy = self._accuracy()
        self.log.write(
            Epoch(
                epoch=epoch,
                accuracy=accuracy,
                samples=self.samples,
                seconds=seconds,
                batch_size=self.batch_size,
            )
        )
        say("epoch %d: validation accuracy %.4f, trained %.2f s" % (epoch, accuracy, seconds))
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
        sizes, index = self.balance.own_sizes, self.shards.index
        members, speeds = self.balance.members, self.balance.speeds
        if index == members[0]:
            self.log.write(Balance(epoch=epoch, workers=members, sizes=sizes, speeds=speeds))
        self.share = self.shards.of_sizes(self.balance.sizes)
        say(
            "epoch %d: batch sizes %s for speeds of %s samples/s. This worker trains samples %d to "
            "%d, %d repeated"
            % (
                epoch,
                batch_sizes.shown(sizes),
                batch_sizes.shown([round(speed, 1) for speed in speeds]),
                self.share.begin,
                self.share.end - 1,
                self.share.repeated,
            )
        )
        if self.balance.sizes[index] != self.batch_size:
            self.batch_size = self.balance.sizes[index]
            # The weights, the gradients and the memory of the first binding stay in use.
            self.module.reshape(*self._shapes())

    def _train(self, epoch: int) -> float:
        """Train the epoch `epoch` (from 0). Return the seconds of the epoch."""
        share, seed = self.share, [self.args.seed, epoch, self.shards.index]
        order = batches.order(share.begin, share.end, share.batches, self.batch_size, seed)
        sizes, measured = self.balance, batch_sizes.measured_steps(share.batches)

        def read(number: int) -> Tuple[np.ndarray, np.ndarray]:
            return self.train.read(order[number], self.side, np.random.RandomState(seed + [number]))

        began = reported = time.monotonic()
        reported_samples, reported_wait = self.samples, self.meter.data_waited
        self.meter.begin()
        self.use.ended()  # A validation is no step.
        for number, (images, labels) in enumerate(
            self.meter.timed(batches.ahead(read, range(share.batches), READERS))
        ):
            self.meter.wait_for_weights()
            batch = mx.io.DataBatch([mx.nd.array(images)], [mx.nd.array(labels)])
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
            self.steps += 1
            self.samples += len(labels)
            # Without this wait Python would queue batches faster than MXNet trains them.
            self.module.get_outputs()[0].wait_to_read()
            self.meter.end_of_batch(len(labels))
            if sizes:
                sizes.speed.add_quota(self.use.ended())
            pulse_file.beat()
            now = time.monotonic()
            is_last = number + 1 == share.batches or self.meter.is_complete
            if is_last or now - reported >= REPORT_SECONDS:
                seconds = max(now - reported, 1e-9)
                waited = min(1.0, (self.meter.data_waited - reported_wait) / seconds)
                self._report(
                    *(epoch, number, labels, (self.samples - reported_samples) / seconds, waited)
                )
                reported, reported_samples = now, self.samples
                reported_wait = self.meter.data_waited
            if self.meter.is_complete:
                break
        mx.nd.waitall()
        self.meter.lap("push_pull")  # the pull of the last step
        return time.monotonic() - began

    def _report(
        self, epoch: int, number: int, labels: np.ndarray, speed: float, data_wait: float
    ) -> None:
        """Write the event `batch`, with the loss and accuracy of this batch alone.

        An evaluation of all batches would take too much time.

        Args:
            epoch: the number of the epoch, from 0.
            number: the number of the batch in the epoch, from 0.
            labels: the labels of the batch, array (batch_size,).
            speed: samples per second.
            data_wait: the part of the time in which the worker waited for samples, 0 to 1.
        """
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
                batch_size=self.batch_size,
                loss=loss,
                train_accuracy=accuracy,
                samples_per_s=speed,
                done=self.steps / self.steps_in_all,
                data_wait=round(data_wait, 4),
            )
        )
        if self.args.measure_waits:
            self.log.write(self.meter.step_times(self.samples))
        say(
            "epoch %d batch %d of %d: loss %.4f, train accuracy %.4f, %.1f samples/s"
            % (epoch, number, self.share.batches, loss, accuracy, speed)
        )

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
        samples, size, right = len(self.validation), self.batch_size, 0
        rows = batches.ahead(
            lambda row: self.validation.read(row, self.side),
            batches.in_file_order(samples, size),
            READERS,
        )
        for number, (images, labels) in enumerate(rows):
            pulse_file.beat()
            self.module.forward(mx.io.DataBatch([mx.nd.array(images)], None), is_train=False)
            fresh = min(size, samples - number * size)  # The other samples fill up the last batch.
            right += (self.module.get_outputs()[0].asnumpy().argmax(axis=1) == labels)[:fresh].sum()
        return float(right) / samples

    def _pull_final(self) -> None:
        """Pull the newest weights from the servers after the last update of all workers.

        Without servers the method does nothing.
        """
        mx.nd.waitall()
        if not self.args.kv.startswith("dist"):
            return
        self.kv._barrier()
        # Under dist_gsync a group's copy of the weights is as old as the group's last update.
        if hasattr(self.kv, "refresh"):
            self.kv.refresh()
        for number, name in enumerate(self.module._param_names):
            self.kv.pull(name, out=self.module._exec_group.param_arrays[number], priority=-number)
        mx.nd.waitall()
        # Module copies the weights from the devices for a checkpoint only if this flag is set.
        self.module._params_dirty = True

    def _saver(self) -> Optional[checkpoint.Saver]:
        """Return the Saver of this worker, or None if this worker writes no checkpoints.

        Only worker 0 of a job that saves or resumes checkpoints has a Saver.
        """
        args, folder = self.args, os.environ.get("MXCLUSTER_JOB_DIR")
        if (
            not folder
            or self.shards.index != 0
            or not (args.savemodel or os.environ.get("MXCLUSTER_RESUME"))
        ):
            return None
        manifest = CheckpointManifest(
            files={},
            epoch=0,
            # The server processes of a host, one for each group, write one part together.
            servers=self.kv.layout.hosts
            if hasattr(self.kv, "layout")
            else int(os.environ.get("DMLC_NUM_SERVER", 1)),
            network=args.network,
            kv=args.kv,
            seed=args.seed,
            workers=self.kv.num_workers,
            batch_size=args.batch_size,
        )
        saved = os.path.join(folder, checkpoints.FOLDER)
        return checkpoint.Saver(
            saved, self.module, self.kv, args.keep_checkpoints, manifest, args.keep_best
        )

    def _save(self, epochs: int, accuracy: float) -> None:
        if self.args.savemodel and self.saver:
            sizes = self.balance
            # Worker 0 does not have the sizes of other groups.
            known = sizes.sizes if sizes and sizes.is_of_all else None
            self.saver.save(epochs, known, accuracy)


def say(text: str) -> None:
    """Print `text` to the log as a line, and flush the log."""
    print(text, flush=True)
