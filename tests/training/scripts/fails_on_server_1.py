"""An optimizer that fails in the second server process only, after the first update there."""

import os

import mxnet as mx


class Failing(mx.optimizer.Optimizer):
    def create_state(self, index, weight):
        return None

    def update(self, index, weight, grad, state):
        if os.environ["MXCLUSTER_ROLE"] == "server" and os.environ["MXCLUSTER_INDEX"] == "1":
            raise RuntimeError("this server fails")
        weight -= grad
