"""Image classification: the training program that `train.yml` runs when no script is given.

It uses MXNet's Module API, which works with every kv-store on every MXNet from 1.2.1 to 1.9.1
(Gluon's Trainer of 1.2.1 cannot drive dist_async), and needs nothing but mxnet and numpy.
"""
import sys

from mxcluster.errors import BadInput
from mxcluster.programs.image_classification import args as arguments

PROGRAM = "image_classification"


def main(argv):
    """Train as argv (list of str, without the program's name) says. Returns the exit status: 0, or 2 for bad input.

    Who this worker is and which part of the data is its own stands in the environment (MXCLUSTER_INDEX,
    MXCLUSTER_GROUPS, MXCLUSTER_JOB_DIR); without it this is one worker that has all the data.
    """
    try:
        options = arguments.parse(argv)
        # Not before: --help and a mistyped argument need no MXNet, whose import takes seconds.
        from mxcluster.programs.image_classification import training
        training.run(options)
    except BadInput as error:
        print("%s: error: %s" % (PROGRAM, error), file=sys.stderr, flush=True)
        return 2
    return 0
