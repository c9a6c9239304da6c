"""`python -I -m mxcluster.entry`, see `mxcluster.entry`."""
import json
import os
import sys

from mxcluster import answer, entry


def _run(_):
    os.chdir("/")
    return entry.run(entry.check(json.load(sys.stdin)))


sys.exit(answer.give(_run, sys.argv[1:]))
