"""Optimizers that fail on the server, and say when."""
import time

import mxnet as mx


class Raising(mx.optimizer.SGD):
    """Raises an exception after some updates."""

    def update(self, index, weight, grad, state):
        super(Raising, self).update(index, weight, grad, state)
        if self.num_update > 20:
            print("fault at %f" % time.time(), flush=True)
            raise RuntimeError("this optimizer has had enough")


class Hanging(mx.optimizer.SGD):
    """Does not come back after some updates."""

    def update(self, index, weight, grad, state):
        super(Hanging, self).update(index, weight, grad, state)
        if self.num_update > 20:
            print("fault at %f" % time.time(), flush=True)
            time.sleep(3600)
