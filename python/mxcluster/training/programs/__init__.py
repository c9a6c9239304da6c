"""The training programs of mxcluster."""

import importlib
import sys
from typing import List

from mxcluster.errors import BadInput
from mxcluster.model.program_arguments import of_command_line

# {name of a program: its module in this package, with a function run(arguments)}
MODULES = {
    "image_classification": "image_classification.training",
    "profile": "profile.measuring",
}


def main(program: str, argv: List[str]) -> int:
    """Run `program` and return its exit status: 0, or 2 after bad input.

    The process must be a worker of a job. Without the variables of a job, the program
    image_classification is the only worker and trains on all the data. For bad input the function
    prints the error to stderr. The function imports the module of the program after a check of
    `argv`, because the import of MXNet takes seconds.

    Args:
        program: a name in MODULES.
        argv: ProgramArguments as JSON, [] for the defaults.
    """
    try:
        arguments = of_command_line(argv)
        importlib.import_module("%s.%s" % (__name__, MODULES[program])).run(arguments)
    except BadInput as error:
        print("%s: error: %s" % (program, error), file=sys.stderr, flush=True)
        return 2
    return 0
