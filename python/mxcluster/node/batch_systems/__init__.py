"""The engines of batch systems, such as Slurm: submit a job, read its state, cancel it.

Each module has the same functions. `problems` and `submit` run on the submit host, `hosts` and
`on_node` on the first node of the job, `state` and `cancel` on both.
"""

import importlib
import os
import re
import subprocess
from typing import Any, Dict, List, NamedTuple, Tuple

from mxcluster.errors import MxclusterError

Json = Dict[str, Any]

# "phase" is "waits" (in the queue), "runs", "ends" (its processes are ending), "ended" or "unknown"
# (the engine did not answer).
# "why": the engine's reason as text, "" for none. Of an ended job "why" is "" if the job ended by
# itself, and the engine only noticed.
State = NamedTuple("State", [("phase", str), ("why", str)])
NOT_FOUND = 127  # as in shells
PATIENCE = 30.0  # seconds for one answer of an engine


def of(launcher: str) -> Any:
    """Return the module of the engine for the knob `launcher`, "slurm" or "sge"."""
    return importlib.import_module("mxcluster.node.batch_systems." + launcher)


def call(argv: List[str], stdin: str = "") -> Tuple[int, str, str]:
    """Run a program of the engine and return (exit status, stdout, stderr).

    The status is NOT_FOUND if the program is missing or does not answer within PATIENCE.
    """
    try:
        done = subprocess.run(
            argv,
            input=stdin.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            env=dict(os.environ, LC_ALL="C"),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return NOT_FOUND, "", str(getattr(error, "strerror", None) or error)
    return (
        done.returncode,
        done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )


def ask(argv: List[str]) -> str:
    """Return the stdout of a program of the engine. MxclusterError with its stderr if it fails."""
    code, out, err = call(argv)
    if code:
        raise MxclusterError("`%s` failed: %s" % (" ".join(argv[:4]), last(err or out)))
    return out


def last(text: str) -> str:
    """Return the last line of `text` with a character, "no reason was given" without one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason was given"


def seconds(limit: str) -> int:
    """Return the seconds of a time limit H:MM:SS, H:MM or a number of minutes."""
    parts = [int(part) for part in limit.split(":")]
    if len(parts) == 1:
        return 60 * parts[0]
    return 3600 * parts[0] + 60 * parts[1] + (parts[2] if len(parts) > 2 else 0)


def job_name(job: str) -> str:
    """Return a name for the job `job` that every engine accepts: it begins with a letter."""
    return "mxcluster-" + re.sub(r"[^A-Za-z0-9._-]", "_", job)
