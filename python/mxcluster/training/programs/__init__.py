"""Training programs of mxcluster: one package each, with `main(argv) -> exit status`."""

import importlib
import sys

from mxcluster.errors import BadInput


def carry_out(program, parse, module, argv):
    """Run `program` and return its exit status: 0, or 2 with a message on stderr for bad input.

    Args: `parse(argv)` returns the options; `module` names the module whose run(options) does the
    work. The function imports the module after the check of the arguments, because the module
    imports MXNet, which takes seconds.
    """
    try:
        options = parse(argv)
        importlib.import_module(module).run(options)
    except BadInput as error:
        print("%s: error: %s" % (program, error), file=sys.stderr, flush=True)
        return 2
    return 0
