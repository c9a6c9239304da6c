"""Write and read engine.json on the first node: the engine's program, and its exit code."""

import json
import os
import time
from typing import Optional

from mxcluster import exit_codes
from mxcluster.agent.folder import JobFolder
from mxcluster.file_io import replace
from mxcluster.model.engine import EngineState
from mxcluster.node import processes

FILE = "engine.json"
LOG = "mpirun"  # without ".log"
HOSTS = "mpirun.hosts"  # the file of hosts for mpirun
ENDS = 0.5  # seconds from the kill of a program, which its agents notice, to the end of its process


def write(folder: JobFolder, state: EngineState) -> None:
    """Write `state` into the job folder."""
    replace(folder.file(FILE), json.dumps(state.encode()))


def read(folder: JobFolder) -> Optional[EngineState]:
    """Return the content of the file, None if the file is missing or damaged."""
    try:
        with open(folder.file(FILE), encoding="utf-8") as stream:
            return EngineState.decode(json.load(stream))
    except (OSError, ValueError, RecursionError):
        return None


def why_killed(folder: JobFolder, seconds: float) -> Optional[str]:
    """Return a message if a signal has ended the engine's program on this node, else None.

    The function waits at most `seconds` until the watcher has written the exit code. It waits only
    ENDS for a program that still runs: after SIGTERM, mpirun waits for the end of its agents.
    """
    began = time.monotonic()
    while True:
        state = read(folder)
        if state is None:  # another node runs the engine's program
            return None
        code = state.exit_code
        runs = processes.alive(processes.recorded(state))
        patience = min(seconds, ENDS) if runs else seconds
        if code is not None or time.monotonic() - began >= patience:
            break
        time.sleep(0.1)
    if code is None or code >= 0:
        return None
    name = os.path.basename(state.program)
    return "%s was %s, and all agents ended with this program" % (name, exit_codes.describe(code))
