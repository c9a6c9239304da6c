"""The training programs of mxcluster.

Each program is a package with a function `main(argv)`, which returns the exit status.
"""

import importlib
import sys

from mxcluster.errors import BadInput


def carry_out(program, parse, module, argv):
    """Run `program` and return its exit status: 0, or 2 after bad input.

    For bad input the function prints the error to stderr.

    Args:
        program: the program's name for the error (str).
        parse: a function that returns the options from `argv`.
        module: the name of the module whose function run(options) does the work. The function
            imports this module after `parse` has accepted `argv`, because the import of MXNet takes
            seconds.
        argv: the arguments (list of str).
    """
    try:
        options = parse(argv)
        importlib.import_module(module).run(options)
    except BadInput as error:
        print("%s: error: %s" % (program, error), file=sys.stderr, flush=True)
        return 2
    return 0
