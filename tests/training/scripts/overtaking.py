"""Push gradients that are ready before the last pull of their key can start.

Argument: kv. Rank 0 holds the array in which a pull arrives until the script has called push. The
pull must return the weights before this push. If push waited in Python, the array would never be
released.
"""

import sys
import threading
import time

import mxnet as mx

from mxcluster.training.kvstore import pull_order

kv = mx.kv.create(sys.argv[1])
RELEASED = []


class Held(mx.operator.CustomOp):
    """Return the input when the event at the number `at` of RELEASED is set."""

    def __init__(self, at):
        super(Held, self).__init__()
        self.at = at

    def forward(self, is_train, req, in_data, out_data, aux):
        if not RELEASED[self.at].wait(60):
            print("push() did not return")
        self.assign(out_data[0], req[0], in_data[0] * 1)


@mx.operator.register("held")
class HeldProperties(mx.operator.CustomOpProp):
    def __init__(self, at):
        super(HeldProperties, self).__init__()
        self.at = int(at)

    def create_operator(self, *_):
        return Held(self.at)


def held(number):
    """Return an array of `number` that is not ready, and the event that releases it."""
    RELEASED.append(threading.Event())
    return mx.nd.Custom(array(number), op_type="held", at=len(RELEASED) - 1), RELEASED[-1]


def array(number):
    made = mx.nd.ones((2,)) * number
    made.wait_to_read()
    return made


def check(what, found, expected):
    found = found.asnumpy().tolist()
    assert found == [expected] * 2, "%s: %s instead of %s" % (what, found, expected)


def overtaken(release):
    """Release the array after a push. Before, give the push time to arrive at the servers."""
    time.sleep(0.5)
    release.set()
    mx.nd.waitall()


sums = sys.argv[1] == "dist_sync"  # without an optimizer, so a push replaces the value
step = {"dist_sync": 0, "dist_gsync": 2, "dist_ssync": 1}[sys.argv[1]] * -1.0
value, weight = array(5), array(-7)
kv.init([0, 100], [value, array(5)])
if not sums:
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1, wd=0, rescale_grad=1.0))
if sums or kv.rank == 0:
    kv.push(100, array(1))  # The first push of all sends the optimizer, and waits for it.
    # Rank 0 receives the first pull in the array of init.
    late, release = held(0)
    value += late
    kv.pull(0, out=weight)
    kv.push(0, array(1))
    overtaken(release)
    check("the first pull", weight, 5)
if sums or kv.rank == 0 and sys.argv[1] != "dist_ssync":  # which waits before the next iteration
    late, release = held(3)
    kv.push(0, late)
    kv.pull(0, out=weight)
    kv.push(0, array(1))
    overtaken(release)
    check("a pull of a later step", weight, 6 if sums else 5 + 4 * step)
kv._barrier()

if sums and hasattr(kv, "broadcast"):
    for key in range(1, 40):
        gradients = [mx.nd.ones((2,), ctx=mx.cpu(device)) for device in (0, 1)]
        weights = [mx.nd.ones((2,), ctx=mx.cpu(device)) * -7 for device in (0, 1)]
        mx.nd.waitall()
        kv.broadcast(key, array(5), weights)
        kv.pushpull(key, gradients, out=gradients)
        mx.nd.waitall()
        check("broadcast", weights[0], 5)
        check("the sum", gradients[1], 4)
if sums:
    rows, waits = mx.nd.sparse.zeros("row_sparse", (2, 2)), []
    kv.init(200, mx.nd.ones((2, 2)).tostype("row_sparse"))
    kv.row_sparse_pull(200, out=rows, row_ids=mx.nd.array([0, 1], dtype="int64"))
    pull_order.write_after = lambda gradient, weight: waits.append(weight)
    kv.push(200, mx.nd.ones((2, 2)).tostype("row_sparse"))
    assert len(waits) == 1 and waits[0] is rows, "a sparse gradient waits for the pull of rows"
print("in order")
