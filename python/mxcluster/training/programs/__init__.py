"""The training programs of mxcluster.

Each program is a package with a function `main(argv)`, which returns the exit status.
"""

import importlib
import sys
from typing import Any, Callable, List

from mxcluster.errors import BadInput


def carry_out(program: str, parse: Callable[[List[str]], Any], module: str, argv: List[str]) -> int:
    """Run `program` and return its exit status: 0, or 2 after bad input.

    For bad input the function prints the error to stderr.

    Args:
        program: the program's name for the error.
        parse: a function that returns the options from `argv`.
        module: the name of the module whose function run(options) does the work. The function
            imports this module after `parse` has accepted `argv`, because the import of MXNet takes
            seconds.
        argv: the arguments.
    """
    try:
        options = parse(argv)
        importlib.import_module(module).run(options)
    except BadInput as error:
        print("%s: error: %s" % (program, error), file=sys.stderr, flush=True)
        return 2
    return 0
