"""Measure the speeds of a worker and of its network, first alone, then with all workers at once.

All workers go through the same phases, with a barrier of ps-lite between two phases:

1. The worker with rank 0 puts the model on each server. Every worker trains a few warm-up steps.
2. The servers time their updates of the whole model.
3. Each worker in its turn measures alone. If the worker has several GPUs, it measures steps on each
   GPU. From then on the GPUs share a batch by these speeds, as in a training with this profile.
   Then the worker measures steps on all its GPUs, and pushes and pulls of the whole model to and
   from each server.
4. All workers measure at the same time: steps, and pushes and pulls of the whole model. The
   parameters of the model are spread over all servers, as in a training.

The job runs under dist_async, where no push waits for another worker. All gradients are zero, so
the weights stay as they are.
"""

import os
import time
from typing import List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from mxcluster import events, work_load
from mxcluster.datasets import DATASETS
from mxcluster.environment import BOUND
from mxcluster.model.events import Profile
from mxcluster.model.profile import ServerTimes, Speed
from mxcluster.model.program_arguments import ProgramArguments
from mxcluster.model.server_messages import MeasureRequest
from mxcluster.node import quota
from mxcluster.node.mxnet_types import Context, DataBatch, Method, Module, NDArray
from mxcluster.training import pulse_file, timing
from mxcluster.training.kvstore import key_layout, server_messages
from mxcluster.training.programs.image_classification import networks, pace, training

WARM_UP = 3  # steps
# Limits in seconds. SECONDS limits the measurement of a speed. WAY_SECONDS limits the measurement
# of pushes to one server, or of pulls from one server. timing.LEAST_STEPS steps may take longer.
SECONDS, WAY_SECONDS = 1.0, 0.3
EXCHANGES = 7
# If there are more workers than turns, several workers measure in the same turn. These workers are
# on different hosts, unless a host has more workers than there are turns.
MOST_TURNS = 16


def run(args: ProgramArguments) -> None:
    """Measure this worker with the options `args`, the arguments of the program.

    The function writes the event `profile`. Raises BadInput for invalid arguments.
    """
    Measuring(args).run()


class Measuring:
    """The measurements of one worker, with its neural network and its kv-store.

    Args:
        args: the arguments of the program.
    """

    def __init__(self, args: ProgramArguments) -> None:
        self.args = args
        shape = DATASETS[args.data].shape
        self.symbol = networks.symbol(args.network, DATASETS[args.data].classes)
        side = networks.picture_side(args.network, self.symbol, *shape[:2])
        self.shape = (shape[0], side, side)
        self.contexts = training.contexts_of(args.gpus)
        training.set_seed(args.seed)
        self.index = int(os.environ.get("MXCLUSTER_INDEX", 0))
        self.module, self.pace = self._bound(self.contexts, args.batch_size, args.work_load)
        self.batch = self._batch(args.batch_size)
        weights = self.module.get_params()[0]
        self.sizes = [int(np.prod(weights[name].shape)) for name in self.module._param_names]
        bound = int(os.environ.get(BOUND, 1000 * 1000))
        os.environ[BOUND] = str(2**31 - 1)  # ps-lite must not cut an array over all servers
        self.kv = mx.kvstore.create(args.kv)
        self.workers, self.servers = self.kv.num_workers, int(os.environ["DMLC_NUM_SERVER"])
        self.layout = key_layout.Layout(1, self.servers, list(range(self.servers)))
        # The keys of a parameter's copy on each server come first. The parts of a parameter that a
        # training would cut have keys of their own.
        # [(key, (number of the parameter, begin, end))]
        self.spread: List[Tuple[int, Tuple[int, int, int]]] = []
        for number, size in enumerate(self.sizes):
            for host, begin, end in self.layout.parts(number, size, bound):
                is_whole = begin is None or end is None
                key_number = number if is_whole else len(self.sizes) + number
                elements = (number, begin or 0, end or size)
                self.spread.append((self.layout.key(0, key_number, host), elements))
        self.gradients = [mx.nd.zeros((size,)) for size in self.sizes]
        self.pulled = [mx.nd.zeros((size,)) for size in self.sizes]

    def run(self) -> None:
        """Take all measurements, and write their results as the event `profile`."""
        self._prepare()
        gpu_speeds: Optional[List[float]] = None
        for turn in range(min(self.workers, MOST_TURNS)):
            self.kv._barrier()
            if self.index % MOST_TURNS == turn:
                if len(self.contexts) > 1 and not self.args.work_load:
                    gpu_speeds = self._gpus()
                alone = self._steps()
                servers = [self._server(rank) for rank in range(self.servers)]
        self.kv._barrier()
        together = self._steps(whole=True)
        self.kv._barrier()
        exchange_s = self._exchange()
        self.kv._barrier()
        events.from_env().write(
            Profile(
                gpu_speeds=gpu_speeds,
                alone=alone,
                servers=servers,
                together=together,
                exchange_s=exchange_s,
                parameters=self.sizes if self.index == 0 else None,
                mxnet=mx.__version__ if self.index == 0 else None,
            )
        )
        training.say(
            "worker %d: %.1f samples/s alone, %.1f with all workers at once, %.1f ms for a push "
            "and pull of the whole model"
            % (self.index, alone.samples_per_s, together.samples_per_s, 1e3 * exchange_s)
        )

    def _bound(
        self, contexts: List[Context], samples: int, loads: Sequence[float] = ()
    ) -> Tuple[Module, pace.Pace]:
        """Return (Module, Pace), bound to batches of `samples` samples.

        Args:
            contexts: MXNet's contexts.
            samples: the number of samples in a batch.
            loads: the speed of each context, () for equal speeds.
        """
        module = mx.mod.Module(self.symbol, context=contexts, work_load_list=list(loads) or None)
        data = (samples,) + self.shape
        module.bind([("data", data)], [("softmax_label", data[:1])])
        module.init_params(mx.init.Xavier())
        sample_seconds = self.args.step_ms / 1000 / self.args.batch_size
        return module, pace.Pace(module, pace.slowdown_of(self.args, self.index), sample_seconds)

    def _batch(self, samples: int) -> DataBatch:
        data = (samples,) + self.shape
        images = np.random.RandomState(self.args.seed).rand(*data).astype("float32")
        labels = np.arange(samples) % DATASETS[self.args.data].classes
        return mx.io.DataBatch([mx.nd.array(images)], [mx.nd.array(labels)])

    def _gpus(self) -> List[float]:
        """Return the speed of each GPU in samples/s, measured one after the other.

        Each GPU trains an equal part of a batch. After this call each GPU gets a part of the batch
        in proportion to the GPU's speed. If a GPU would get no sample, the parts stay equal.
        """
        samples = max(1, self.args.batch_size // len(self.contexts))
        batch, speeds = self._batch(samples), []
        for context in self.contexts:
            _, paced = self._bound([context], samples)

            def step(paced: pace.Pace = paced) -> None:
                paced.run(batch, samples)
                pulse_file.beat()

            for _ in range(WARM_UP):
                step()
            speeds.append(samples / timing.median(timing.repeat(step, SECONDS)))
        if 0 not in work_load.split(self.args.batch_size, speeds):
            self.module, self.pace = self._bound(self.contexts, self.args.batch_size, speeds)
            for _ in range(WARM_UP):
                self._step()
        return speeds

    def _prepare(self) -> None:
        if self.kv.rank == 0:
            self.kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.05, momentum=0.9))
        copies = {
            self.layout.key(0, number, rank): array
            for rank in range(self.servers)
            for number, array in enumerate(self.gradients)
        }
        for key, (number, begin, end) in self.spread:
            copies.setdefault(key, self.gradients[number][begin:end])
        self.kv.init(list(copies), list(copies.values()))
        for _ in range(WARM_UP):
            self._step()
        self.kv._barrier()
        if self.kv.rank == 0:
            request = MeasureRequest(sizes=self.sizes, seconds=SECONDS)
            server_messages.send(self.kv, "measure", request)
        self.kv._barrier()

    def _step(self) -> None:
        self.pace.run(self.batch, self.args.batch_size)
        pulse_file.beat()

    def _steps(self, whole: bool = False) -> Speed:
        """Return the median speed of this worker. For `whole` see `timing.repeat`.

        Under a quota of CPU time, a step counts with at least the time that the quota needs for it.
        The median alone hides the steps in which the quota stops the worker.
        """
        use = quota.Steps(quota.tightest())
        times = timing.repeat(self._step, SECONDS, whole)
        seconds = max(timing.median(times), use.ended() / len(times))
        return Speed(samples_per_s=self.args.batch_size / seconds, spread=timing.spread(times))

    def _server(self, rank: int) -> ServerTimes:
        """Return the median seconds of a push and of a pull of the whole model.

        The worker pushes to and pulls from the server with rank `rank` only.
        """
        keys = [self.layout.key(0, number, rank) for number in range(len(self.sizes))]

        def median_s(method: Method, arrays: List[NDArray]) -> float:
            def step() -> None:
                method(keys, arrays)
                mx.nd.waitall()
                pulse_file.beat()

            return timing.median(timing.repeat(step, WAY_SECONDS))

        return ServerTimes(
            push_s=median_s(self.kv.push, self.gradients),
            pull_s=median_s(self.kv.pull, self.pulled),
        )

    def _exchange(self) -> float:
        """Return the median seconds of a push and pull of the whole model.

        All workers push and pull at the same time. Each parameter is on the same servers as in a
        training.
        """
        keys, parts = zip(*self.spread)
        gradients = [self.gradients[number][begin:end] for number, begin, end in parts]
        pulled = [self.pulled[number][begin:end] for number, begin, end in parts]
        times = []
        for _ in range(EXCHANGES):
            self.kv._barrier()
            began = time.monotonic()
            self.kv.push(list(keys), gradients)
            self.kv.pull(list(keys), pulled)
            mx.nd.waitall()
            times.append(time.monotonic() - began)
            pulse_file.beat()
        return timing.median(times)
