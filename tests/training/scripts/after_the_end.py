"""Work after the last line: in a thread, an executor, or a function of atexit.

Arguments: kv; then thread, executor, atexit, thread_fails, atexit_exits or child_exits.
"""

import atexit
import concurrent.futures
import os
import sys
import threading
import time

import mxnet as mx

kind, where = sys.argv[1:]


def train():
    time.sleep(1)  # the main thread is at its end
    before = threading.enumerate()
    kv = mx.kv.create(kind)
    assert threading.enumerate() == before, "Python 3.12 cannot start this thread any more"
    kv.init("w", mx.nd.zeros((4,)))
    kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=1.0))
    steps(kv, 5)


def steps(kv, number):
    weight = mx.nd.zeros((4,))
    for _ in range(number):
        kv.push("w", mx.nd.ones((4,)))
        kv.pull("w", out=weight)
        weight.wait_to_read()
    print("DONE", weight.asnumpy())
    sys.stdout.flush()
    import __main__

    assert __main__.train is train, "the script is the main module to its end"


def save():
    weight = mx.nd.zeros((4,))
    kv.pull("w", out=weight)
    name = "final-%s.params" % os.environ["MXCLUSTER_INDEX"]
    mx.nd.save(os.path.join(os.environ["MXCLUSTER_JOB_DIR"], name), {"w": weight})
    print("SAVED", weight.asnumpy())
    sys.stdout.flush()


def sleep():
    time.sleep(600)


if where == "thread":
    threading.Thread(target=train).start()
elif where == "executor":
    concurrent.futures.ThreadPoolExecutor(1).submit(train)
elif where == "atexit":
    kv = mx.kv.create(kind)
    kv.init("w", mx.nd.zeros((4,)))
    kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=1.0))
    atexit.register(save)
    steps(kv, 3)
elif where == "thread_fails":
    kv = mx.kv.create(kind)
    threading.Thread(target=sleep).start()
    atexit.register(print, "NEVER")
    sys.exit(7)
elif where == "atexit_exits":
    kv = mx.kv.create(kind)
    atexit.register(print, "CALLED", file=sys.stderr)
    sys.exit(7)
elif where == "child_exits":
    kv = mx.kv.create(kind)
    child = os.fork()
    if child == 0:
        sys.exit(3)
    print("CHILD", os.waitpid(child, 0)[1] >> 8, file=sys.stderr)
