"""The programs of the agent. Each prints one JSON object on stdout.

- `python -m mxcluster.agent run --job-dir DIR`: the agent in the foreground;
- `watch`, `hold`: the parents of an engine's program and of an agent (see `agent.engine`).

The exit status is 0 on success. On an error the exit status is 1, and the object is {"error": "what
is wrong, where, and what to do"}.
"""

import argparse
from typing import Callable, Dict

from mxcluster.agent import commands, engine
from mxcluster.agent.folder import JobFolder
from mxcluster.model.engine import ProgramEnd
from mxcluster.node import json_cli

PROGRAMS: Dict[str, Callable[[JobFolder], ProgramEnd]] = {
    "run": commands.run,
    "watch": engine.watch,
    "hold": engine.hold,
}


def main() -> int:
    """Run the program of this process's command line, and return the exit status."""
    parser = argparse.ArgumentParser(prog="mxcluster.agent", description=__doc__)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--job-dir", required=True, help="the job's folder on this node")
    given = parser.parse_args()
    return json_cli.give(lambda: PROGRAMS[given.program](JobFolder(given.job_dir)).encode())


if __name__ == "__main__":
    json_cli.leave(main())
