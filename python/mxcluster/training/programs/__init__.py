"""The training programs of mxcluster.

Each program is a package with a function `main(argv)`, which returns the exit status.
"""

import importlib
import sys
from typing import List

from mxcluster.errors import BadInput
from mxcluster.model.program_arguments import of_command_line


def carry_out(program: str, module: str, argv: List[str]) -> int:
    """Run `program` and return its exit status: 0, or 2 after bad input.

    For bad input the function prints the error to stderr.

    Args:
        program: the program's name for the error.
        module: the name of the module whose function run(arguments) does the work. The function
            imports this module after a check of `argv`, because the import of MXNet takes seconds.
        argv: ProgramArguments as JSON, [] for the defaults.
    """
    try:
        arguments = of_command_line(argv)
        importlib.import_module(module).run(arguments)
    except BadInput as error:
        print("%s: error: %s" % (program, error), file=sys.stderr, flush=True)
        return 2
    return 0
