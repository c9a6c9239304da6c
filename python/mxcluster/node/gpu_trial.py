"""A program: compute with MXNet on every GPU, and copy between all pairs of GPUs.

`python -m mxcluster.node.gpu_trial COUNT` prints a line of JSON for each result: [GPU or pair, None
or the error]. For some GPUs the driver compiles MXNet's kernels in the first minutes.
"""

import itertools
import json
import sys
from functools import partial
from typing import Callable, Iterator, List, Optional, Tuple

from mxcluster.node import mxnet_compat
from mxcluster.node.mxnet_types import Context, Package

SIDE = 1024  # rows and columns of the matrices
NUMBERS = 1 << 20  # count of the copied numbers: 4 MB, more than a page of memory


def trials(
    mx: Package, count: int, place: Callable[[int], Context]
) -> Iterator[Tuple[str, Optional[str]]]:
    """Yield (name of a trial, None or the error).

    The names are "0", "1" ... for the GPUs, and "0 -> 1" ... for the copies.

    Args: `mx` the module mxnet; `count` the number of GPUs; `place` a function that returns the
    device of a number, such as mx.gpu.
    """
    for one in range(count):
        yield str(one), _error_of(partial(computes, mx, place(one)))
    for one, two in itertools.permutations(range(count), 2):
        copy = partial(copies, mx, place(one), place(two), one)
        yield "%d -> %d" % (one, two), _error_of(copy)


def computes(mx: Package, where: Context) -> Optional[str]:
    """Compute on a device, and return the first wrong result, or None if all results are right.

    The results come from MXNet's own kernels, from cuBLAS (dot) and from cuDNN (Convolution).
    """
    ones = mx.nd.ones((SIDE, SIDE), where)
    threes = ones * 2 + 1
    product = mx.nd.dot(threes, threes)
    picture = mx.nd.Convolution(
        mx.nd.ones((1, 1, 4, 4), where),
        mx.nd.ones((1, 1, 3, 3), where),
        no_bias=True,
        kernel=(3, 3),
        num_filter=1,
    )
    for name, found, right in (
        ("a sum", threes, 3),
        ("a product of matrices", product, 9 * SIDE),
        ("a convolution", picture, 9),
    ):
        values = found.asnumpy()
        if not (values == right).all():
            wrong = values[values != right]
            return "%s gives %g, not %d, in %d of %d places" % (
                name,
                wrong[0],
                right,
                wrong.size,
                values.size,
            )
    return None


def copies(mx: Package, source: Context, goal: Context, number: int) -> Optional[str]:
    """Copy numbers between two devices, and return an error if they arrive changed, else None.

    Args: `source` and `goal` the devices; `number` the first of the numbers, which differs between
    copies.
    """
    # Whole numbers below 2 ** 24, which float32 holds exactly.
    sent = mx.nd.arange(number, number + NUMBERS, ctx=source)
    values = sent.copyto(goal).asnumpy()
    wrong = int((values != sent.asnumpy()).sum())
    return "%d of %d numbers arrive changed" % (wrong, NUMBERS) if wrong else None


def _error_of(trial: Callable[[], Optional[str]]) -> Optional[str]:
    try:
        return trial()
    except Exception as error:  # a broken library raises MXNetError or another error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # The traceback stands before the message in MXNet 1.9.1, and after the message in 1.2.1.
        return lines[-1 if lines[0].startswith("Traceback") else 0]


def main(argv: List[str]) -> None:
    """Print the result of each trial on `argv[0]` GPUs."""
    try:
        mx = mxnet_compat.import_mxnet()
    except Exception as error:
        sys.exit("cannot import MXNet: %s" % error)
    for result in trials(mx, int(argv[0]), mx.gpu):
        print("TRIAL " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
