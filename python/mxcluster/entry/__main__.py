"""Run `mxcluster.entry` as a program.

- `python -I -m mxcluster.entry` carries out the request on stdin;
- `python -I -m mxcluster.entry --serve` carries out the requests of the head of a batch job.
"""

import json
import os
import sys

from mxcluster import entry
from mxcluster.entry import programs
from mxcluster.model import protocol
from mxcluster.node import json_cli

os.chdir("/")
# stdout holds only the answer. Output of libraries (also in C) and of children goes to stderr.
programs.ANSWERS.append(os.dup(1))
os.dup2(2, 1)
if sys.argv[1:] == ["--serve"]:
    from mxcluster.entry import server  # not at the top: each poll would import it

    with os.fdopen(programs.ANSWERS.pop(), "w") as stream:
        server.serve(stream)
    sys.exit(0)
result, code = json_cli.of(lambda: entry.run(protocol.read(sys.stdin.buffer.read())).encode())
with os.fdopen(programs.ANSWERS.pop(), "w") as stream:
    stream.write("\n%s\n" % json.dumps(result))
json_cli.leave(code)
