"""A user's own optimizer and schedule, beside the script."""

import mxnet as mx


@mx.optimizer.register
class Halving(mx.optimizer.Optimizer):
    """Uses half of the learning rate."""

    def create_state(self, index, weight):
        return None

    def update(self, index, weight, grad, state):
        self._update_count(index)
        weight -= 0.5 * self._get_lr(index) * grad


class Constant(mx.lr_scheduler.LRScheduler):
    def __call__(self, num_update):
        return self.base_lr
