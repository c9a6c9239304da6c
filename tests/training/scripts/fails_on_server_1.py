"""An optimizer that fails in the second server process only, at the second update there."""

import os

import mxnet as mx

UPDATES = []  # of this process; MXNet's own counts are those of all server processes of a host


class Failing(mx.optimizer.Optimizer):
    def create_state(self, index, weight):
        return None

    def update(self, index, weight, grad, state):
        here = os.environ["MXCLUSTER_ROLE"], os.environ["MXCLUSTER_INDEX"]
        if here == ("server", "1") and UPDATES:
            raise RuntimeError("this server fails")
        UPDATES.append(index)
        weight -= grad
