"""The command `mxcluster` on the controller: `mxcluster launch ...` (see `launch_line`)."""

import sys
from typing import List, Optional

from mxcluster.cli import child, launch_line
from mxcluster.errors import MxclusterError

USAGE = "usage: mxcluster launch -n WORKERS [option ...] python script.py [argument ...]"


def main(argv: Optional[List[str]] = None) -> int:
    """Carry out the command line `argv`, by default sys.argv. Return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] != "launch":
        print("%s\nmxcluster launch --help shows the options" % USAGE, file=sys.stderr)
        return 0 if words in (["-h"], ["--help"]) else 2
    try:
        line = launch_line.parse(words[1:])
        for note in line.notes:
            print("mxcluster launch: %s" % note, file=sys.stderr, flush=True)
        return child.run(line.inventories, line.knobs)
    except MxclusterError as error:
        print("mxcluster launch: %s" % error, file=sys.stderr)
        return 2
