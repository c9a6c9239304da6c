"""A user's own optimizer and schedule, beside the script."""

import mxnet as mx
import numpy as np


class Stateful(mx.optimizer.Optimizer):
    """Has a rate for each array, in an attribute that travels under another name."""

    def __init__(self, **arguments):
        super(Stateful, self).__init__(**arguments)
        self.rates = {key: np.float32(self.lr) for key in self.idx2name}
        self.scale = np.ones((1,), dtype="float32")

    def __getstate__(self):
        state = dict(vars(self), sent=(self.rates, {self.lr}))
        del state["rates"], state["param_dict"]
        return state

    def __setstate__(self, state):
        self.rates, _ = state.pop("sent")
        vars(self).update(state, param_dict={})

    def create_state(self, index, weight):
        return None

    def update(self, index, weight, grad, state):
        rate = self.rates[index] * self.rescale_grad
        weight -= float(rate) * mx.nd.array(self.scale) * grad
