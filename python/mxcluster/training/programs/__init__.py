"""Training programs of mxcluster: a package each, whose `main(argv)` returns the exit status."""

import importlib
import sys

from mxcluster.errors import BadInput


def carry_out(program, parse, module, argv):
    """Run `program` and return its exit status: 0, or 2 after bad input.

    For bad input the function prints the error to stderr.

    Args: `program` its name for the error; `parse(argv)` returns the options; `module` names the
    module whose run(options) does the work. The function imports this module only after `parse`
    has accepted `argv`, because the import of MXNet takes seconds.
    """
    try:
        options = parse(argv)
        importlib.import_module(module).run(options)
    except BadInput as error:
        print("%s: error: %s" % (program, error), file=sys.stderr, flush=True)
        return 2
    return 0
