"""Optimizers that fail on the server, and print the time."""

import time

import mxnet as mx


class Failing(mx.optimizer.Optimizer):
    """Plain descent, with a failure after some updates."""

    def create_state(self, index, weight):
        return None

    def update(self, index, weight, grad, state):
        self._update_count(index)
        weight -= self._get_lr(index) * grad
        if self.num_update > 100:
            print("fault at %f" % time.time(), flush=True)
            self.fail()


class Raising(Failing):
    """Raises an exception."""

    def fail(self):
        raise RuntimeError("this optimizer has had enough")


class Hanging(Failing):
    """Blocks in an update."""

    def fail(self):
        time.sleep(3600)
