"""The kv-store ``dist_ssync`` on a worker: stale synchronous parallel (SSP)."""

import collections
import os
import time
from typing import Dict, List, Optional, Tuple

from mxnet import nd

from mxcluster import events
from mxcluster.model.events import Iteration, StoreWaits
from mxcluster.training.kvstore import key_layout
from mxcluster.training.kvstore.backoff import Backoff
from mxcluster.training.kvstore.call_arguments import Arrays, first
from mxcluster.training.kvstore.ssync_server import CLOCK_KEY, FINISHED
from mxcluster.training.kvstore.worker_base import IS_OLD, OwnStore, Place

Pull = Tuple[List[int], List[Arrays], int]  # the arguments of `StaleStore._pull`

_REPORT_SECONDS = 5.0


class StaleStore(OwnStore):
    """A kv-store that updates like dist_async, but waits for workers that are too far behind.

    Iteration t starts when ``t - min(clock) <= staleness``. The clock has a counter for each
    worker. The counter is the number of the worker's iterations whose updates have all arrived at
    the servers. An iteration is one call of Trainer.step or Module.update. The call returns when
    the next iteration may start.

    In a script without these calls, the second push of a key begins the next iteration. The pulls
    before this push do not wait for other workers, so the pulled weights may be one iteration older
    than the bound.

    Source: Ho et al., NIPS 2013. MXNet-G writes s + 1 for the same bound, and stops waiting after
    nine seconds.
    """

    name = "dist_ssync"
    inner = "dist_async"

    def __init__(self, groups: List[int], index: int) -> None:
        super(StaleStore, self).__init__(groups, index)
        self._layout = key_layout.of_ranks(os.environ)
        self.staleness = int(os.environ["MXCLUSTER_STALENESS"])
        self._clock = nd.zeros((len(groups),))
        super(OwnStore, self).init(CLOCK_KEY, self._clock)
        self._iteration = 0  # completed iterations
        self._slowest = 0  # min(clock) at the last read
        # {key pushed in this iteration: the arrays of its later pull, or None}
        self._arrays: Dict[int, Optional[Arrays]] = collections.OrderedDict()
        self._shapes: Dict[int, Tuple[int, ...]] = {}
        # the pulls so far inside Trainer.step or Module.update, else None
        self._collected: Optional[List[Pull]] = None
        self._trace = os.environ.get("MXCLUSTER_TRACE") == "1"
        self._backoff = Backoff()
        self._began = self._reported = time.monotonic()
        self._steps, self._waited_s = 0, 0.0

    @property
    def type(self) -> str:
        """The store's type, which Module, FeedForward and Gluon's Trainer read."""
        # If the type contains "dist", Gluon's Trainer of MXNet 1.2 does not send the optimizer to
        # the servers (apache/mxnet#11855). Module and FeedForward divide gradients by the batch
        # sizes of all workers: Module if the type contains "_sync", FeedForward unless the type
        # contains "_async".
        return "ssync" if IS_OLD and self.in_trainer else "dist_async_ssync"

    def begin_step(self) -> None:
        """Collect the pulls of a call of Trainer.step or Module.update until `end_step`.

        If the script has pushed outside such a call, first end the iteration of these pushes.
        """
        if self._arrays:
            self._complete()
        self._collected = []

    def end_step(self) -> None:
        """Run the pulls that `begin_step` collects, then wait until the next iteration may start.

        If the worker had to wait, run the pulls again to get the newer weights.
        """
        pulls, self._collected = self._collected or [], None
        self._pull_now(pulls)
        if self._arrays and not self._complete():
            # The first pull may miss updates that the next iteration must see.
            self._pull_now(pulls)

    def close(self) -> None:
        """Add FINISHED to this worker's counter in the clock.

        The other workers then no longer wait for this worker. Do not use the store after this call.
        """
        if self._arrays:
            self._arrive()
        self._advance(FINISHED)
        self._report()

    def _places(self, number: int, size: int) -> List[Place]:
        key, most = number, CLOCK_KEY - 1
        if self._layout is not None:
            # ps-lite itself cuts a large parameter over all servers, whatever its key is.
            key = self._layout.key(0, number, self._layout.home(number))
            most = number - 1
        if not 0 <= key < CLOCK_KEY:
            raise ValueError(
                "parameter key %r is outside 0 .. %d: use keys in this range" % (number, most)
            )
        return [(key, None, None)]

    def _push(self, keys: List[int], values: List[Arrays], priority: int) -> None:
        if self._collected is None and not self._arrays.keys().isdisjoint(keys):
            self._complete()
        super(StaleStore, self)._push(keys, values, priority)
        for key, arrays in zip(keys, values):
            self._arrays[key] = None
            self._shapes[key] = first(arrays).shape

    def _pull(self, keys: List[int], values: List[Arrays], priority: int) -> None:
        if self._collected is not None and not self._arrays.keys().isdisjoint(keys):
            self._collected.append((keys, values, priority))
        else:
            self._pull_now([(keys, values, priority)])

    def _pull_now(self, pulls: List[Pull]) -> None:
        for keys, values, priority in pulls:
            super(StaleStore, self)._pull(keys, values, priority)
            self._arrays.update(pair for pair in zip(keys, values) if pair[0] in self._arrays)

    def _complete(self) -> bool:
        """End this iteration, and wait until the next iteration may start.

        Return True if the next iteration may start without a wait, else False.
        """
        self._arrive()
        self._iteration += 1
        self._steps += 1
        self._advance(1.0)
        at_once = self._may_start()
        if not at_once:
            self._wait()
        if self._trace:
            events.from_env().write(Iteration(iteration=self._iteration, slowest=self._slowest))
        # The clock was read before the next pull, so its value holds for the next iteration.
        self._slowest = self._newest()
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._report()
        return at_once

    def _arrive(self) -> None:
        """Wait until all updates of this iteration have arrived at the servers.

        The worker waits for a pull of each pushed key. A server answers the pull after the push of
        the same key. The clock counts the iteration only after all answers, because messages to
        different servers have no order.
        """
        for key, arrays in self._arrays.items():
            if arrays is None:
                arrays = nd.zeros(self._shapes[key])  # The script has not pulled this key.
                super(OwnStore, self).pull(key, out=arrays)
            for array in arrays if isinstance(arrays, (list, tuple)) else [arrays]:
                array.wait_to_read()
        self._arrays.clear()

    def _advance(self, ticks: float) -> None:
        tick = nd.zeros((len(self.groups),))
        tick[self.index] = ticks
        super(OwnStore, self).push(CLOCK_KEY, tick)
        self._read_clock()

    def _read_clock(self) -> int:
        """Read the clock from the servers. Return the iterations of the slowest worker."""
        super(OwnStore, self).pull(CLOCK_KEY, out=self._clock)
        return self._newest()

    def _wait(self) -> None:
        began = time.monotonic()
        for pause in self._backoff.pauses():
            time.sleep(pause)
            self._slowest = self._read_clock()
            if self._may_start():
                break
        waited = time.monotonic() - began
        self._backoff.waited(waited)
        self._waited_s += waited

    def _may_start(self) -> bool:
        return self._iteration - self._slowest <= self.staleness

    def _newest(self) -> int:
        return int(self._clock.asnumpy().min())

    def _report(self) -> None:
        self._reported = time.monotonic()
        events.from_env().write(
            StoreWaits(
                seconds=round(self._reported - self._began, 4),
                steps=self._steps,
                waited_s=round(self._waited_s, 4),
            )
        )
