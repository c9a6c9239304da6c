"""Profile: the program that `profile.yml` runs to measure workers, servers and the network."""

import sys

from mxcluster.errors import BadInput
from mxcluster.training.programs.image_classification import args as arguments

PROGRAM = "profile"


def main(argv):
    """Measure as `argv` (list of str, the arguments of image_classification) says.

    Returns the exit status: 0, or 2 for bad input. The process must be a worker of a job.
    """
    try:
        options = arguments.parse(argv)
        from mxcluster.training.programs.profile import measuring

        measuring.run(options)
    except BadInput as error:
        print("%s: error: %s" % (PROGRAM, error), file=sys.stderr, flush=True)
        return 2
    return 0
