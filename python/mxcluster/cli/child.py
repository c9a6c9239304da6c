"""Run train.yml as a child, with knobs from a private file, and find its true exit status."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Optional

import mxcluster
from mxcluster.errors import BadInput
from mxcluster.node import processes

Json = Dict[str, Any]

PROJECT = pathlib.Path(mxcluster.__file__).resolve().parents[2]
INTERRUPTED = 130  # as in shells: 128 + SIGINT


def run(inventories: List[str], knobs: Json) -> int:
    """Run train.yml with `knobs` and return the exit status of the job (see `status_of`).

    `inventories`: absolute paths, none for that of ansible.cfg. Raises BadInput without the
    project.
    """
    program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
    if not (PROJECT / "train.yml").is_file() or not os.path.isfile(program):
        raise BadInput(
            "there is no train.yml in %s, or no ansible-playbook beside %s: run `make venv` in the "
            "project, and use its .venv/bin/mxcluster" % (PROJECT, sys.executable)
        )
    with tempfile.TemporaryDirectory(prefix="mxcluster-launch-") as folder:
        given, verdict = os.path.join(folder, "knobs.json"), os.path.join(folder, "verdict.json")
        with open(os.open(given, os.O_WRONLY | os.O_CREAT, 0o600), "w") as stream:
            json.dump(knobs, stream)
        chosen = [word for path in inventories for word in ("-i", path)]
        argv = [program, *chosen, "train.yml", "-e", "@" + given]
        code = _wait(argv, dict(os.environ, PWD=str(PROJECT), MXCLUSTER_VERDICT=verdict))
        return status_of(code, _read(verdict))


def _wait(argv: List[str], environment: Dict[str, str]) -> int:
    """Run `argv` in the project to its end, and pass SIGTERM on to it. Return the exit status."""
    me = os.getpid()
    child = subprocess.Popen(
        argv,
        cwd=str(PROJECT),
        env=environment,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: processes.set_pdeathsig(me, signal.SIGTERM),
    )
    signal.signal(signal.SIGTERM, lambda signum, frame: child.send_signal(signal.SIGINT))
    while True:
        try:
            code = child.wait()
            return code if code >= 0 else 128 - code
        except KeyboardInterrupt:  # a terminal has sent SIGINT to the child, too
            continue


def _read(path: str) -> Optional[Json]:
    """Return the verdict that train.yml has written to `path`, None without one."""
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def status_of(code: int, verdict: Optional[Json]) -> int:
    """Return the exit status of a job.

    It is 0 for a job that is ok. If a process of the job failed first, it is that of the process,
    128 + n after signal n. Otherwise it is that of ansible-playbook, or 1.

    Args: `code` the exit status of ansible-playbook; `verdict` as `job.verdict.compute` returns it,
    None if the job has none.
    """
    if verdict is None or verdict.get("ok"):
        return code
    found = (verdict.get("first_failure") or {}).get("exit_code")
    if isinstance(found, int) and found > 0:
        return found
    if isinstance(found, int) and found < 0:
        return 128 - found
    return INTERRUPTED if code == INTERRUPTED else 1
