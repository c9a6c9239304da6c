"""Run `mxcluster.entry.run` as a program: `python -I -m mxcluster.entry`."""

import json
import os
import sys
from typing import List

from mxcluster import entry
from mxcluster.entry import programs
from mxcluster.node import json_cli


def _run(_: List[str]) -> entry.Json:
    os.chdir("/")
    return entry.run(entry.check(json.load(sys.stdin)))


# stdout holds only the answer. Output of libraries (also in C) and of children goes to stderr.
programs.ANSWERS.append(os.dup(1))
os.dup2(2, 1)
result, code = json_cli.of(_run, sys.argv[1:])
with os.fdopen(programs.ANSWERS.pop(), "w") as stream:
    stream.write("\n%s\n" % json.dumps(result))
sys.exit(code)
