"""`python -I -m mxcluster.entry`, see `mxcluster.entry`."""
import json
import os
import sys

from mxcluster import answer, entry
from mxcluster.entry import programs


def _run(_):
    os.chdir("/")
    return entry.run(entry.check(json.load(sys.stdin)))


# What libraries and children print, in whatever language, goes where errors go.
programs.ANSWERS.append(os.dup(1))
os.dup2(2, 1)
result, code = answer.of(_run, sys.argv[1:])
with os.fdopen(programs.ANSWERS.pop(), "w") as stream:
    stream.write("\n%s\n" % json.dumps(result))
sys.exit(code)
