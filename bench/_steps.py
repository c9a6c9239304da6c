"""Push and pull arrays as a worker of the benchmark `kvstore`, in turns with another job.

Arguments: kv, number of arrays, size of an array, steps of a block, folder of the turns, name of
this job, output, and "same" or "fresh". With "same" each push of a key has the same array, as in
Module. With "fresh" it has a new one, which the worker makes before the clock of the block starts.

A block begins when the folder contains `<name>-<block>`; the first block has one step. At the end
the worker writes a list to `<output>-<index>.json`: for each block the mean seconds of a step, and
those of all this worker's threads on a CPU. Worker 0's first entry is the seconds from the creation
of its kv-store to the end of the first step.
"""

import json
import os
import sys
import time

import mxnet as mx


def main(kind, arrays, size, steps, turns, name, output, gradient):
    """Run blocks of steps until the file `<name>-end` exists in `turns`, then write the seconds.

    Args: `kind` the kv; `arrays` their number; `size` of an array; `steps` of a block; `turns` the
    folder of the turns; `name` of this job; `output` the path of the result without its suffix;
    `gradient` "fresh" or "same".
    """
    me = int(os.environ["MXCLUSTER_INDEX"])
    kv = mx.kv.create(kind)
    began = time.time()
    keys = list(range(arrays))
    weights = [mx.nd.zeros((size,)) for _ in keys]
    gradients = [mx.nd.ones((size,)) for _ in keys]
    for key in keys:
        kv.init(key, weights[key])
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.01, momentum=0.9, rescale_grad=1.0))
    kv._barrier()
    found, block = [], 0
    while True:
        turn = next_turn(turns, name, block)
        if turn == "end":
            break
        rounds = [gradients] * (steps if block else 1)
        if gradient == "fresh":
            rounds = [[array.copy() for array in one] for one in rounds]
            mx.nd.waitall()
        kv._barrier()
        start, used = time.time(), time.process_time()
        for one in rounds:
            for key in keys:
                kv.push(key, one[key], priority=-key)
            for key in keys:
                kv.pull(key, out=weights[key], priority=-key)
            mx.nd.waitall()
        kv._barrier()
        taken = time.time() - start, time.process_time() - used
        found.append([seconds / (steps if block else 1) for seconds in taken])
        block += 1
        if me == 0:
            if block == 1:
                # from the creation of the store to the end of the first step
                found[0][0] = time.time() - began
            open(os.path.join(turns, "done-%s-%d" % (name, block - 1)), "w").close()
    with open("%s-%d.json" % (output, me), "w") as stream:
        json.dump(found, stream)


def next_turn(turns, name, block):
    """Wait for the file `<name>-<block>` or `<name>-end` in `turns`; return `block` or "end"."""
    while True:
        for turn in (block, "end"):
            if os.path.exists(os.path.join(turns, "%s-%s" % (name, turn))):
                return turn
        time.sleep(0.005)


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        int(sys.argv[4]),
        sys.argv[5],
        sys.argv[6],
        sys.argv[7],
        sys.argv[8],
    )
