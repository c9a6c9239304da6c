"""Training programs of mxcluster: one package each, with `main(argv) -> exit status`."""

import importlib
import sys

from mxcluster.errors import BadInput


def carry_out(program, parse, module, argv):
    """Return the exit status of `program`: 0, or 2 for bad input, which is printed to stderr.

    Args: `parse(argv)` returns the options; `module` names the module whose run(options) does the
    work. The module is imported last: a mistyped argument needs no MXNet, whose import takes
    seconds.
    """
    try:
        options = parse(argv)
        importlib.import_module(module).run(options)
    except BadInput as error:
        print("%s: error: %s" % (program, error), file=sys.stderr, flush=True)
        return 2
    return 0
