"""Run `python -I -m mxcluster.entry` (see `mxcluster.entry`)."""

import json
import os
import sys

from mxcluster import entry
from mxcluster.entry import programs
from mxcluster.node import json_cli


def _run(_):
    os.chdir("/")
    return entry.run(entry.check(json.load(sys.stdin)))


# stdout is for the answer only. What libraries (also in C) and children print goes to stderr.
programs.ANSWERS.append(os.dup(1))
os.dup2(2, 1)
result, code = json_cli.of(_run, sys.argv[1:])
with os.fdopen(programs.ANSWERS.pop(), "w") as stream:
    stream.write("\n%s\n" % json.dumps(result))
sys.exit(code)
