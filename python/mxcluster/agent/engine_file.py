"""Write and read engine.json on the first node: the engine's program, and its exit code."""

import json
import os
import time
from typing import Any, Dict, Optional

from mxcluster import exit_codes
from mxcluster.agent.folder import JobFolder
from mxcluster.file_io import replace

Json = Dict[str, Any]

FILE = "engine.json"
LOG = "mpirun"  # without ".log"
HOSTS = "mpirun.hosts"  # the file of hosts for mpirun


def write(folder: JobFolder, state: Json) -> None:
    """Write `state`, {"program", "watcher", "pid", "start_time", "exit_code"}, into the job folder.

    "watcher" is the Identity of the program's parent, as a dict. "exit_code" is None while the
    program runs, and minus the signal's number if a signal ended the program.
    """
    replace(folder.file(FILE), json.dumps(state))


def read(folder: JobFolder) -> Optional[Json]:
    """Return the content of the file, None if the file is missing or damaged."""
    try:
        with open(folder.file(FILE), encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def why_killed(folder: JobFolder, seconds: float) -> Optional[str]:
    """Return a message if a signal has ended the engine's program on this node, else None.

    The function waits at most `seconds` until the watcher has written the exit code.
    """
    deadline = time.monotonic() + seconds
    while True:
        state = read(folder)
        if state is None:  # another node runs the engine's program
            return None
        code = state.get("exit_code")
        if isinstance(code, int) or time.monotonic() >= deadline:
            break
        time.sleep(0.1)
    if not isinstance(code, int) or code >= 0:
        return None
    name = os.path.basename(str(state.get("program")))
    return "%s was %s, and all agents ended with this program" % (name, exit_codes.describe(code))
