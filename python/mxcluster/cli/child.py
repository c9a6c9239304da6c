"""Run train.yml as a child process, and return the exit status of the job."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from typing import Dict, List, Optional

import yaml

import mxcluster
from mxcluster.errors import BadInput
from mxcluster.file_io import read_json
from mxcluster.model.sweep import Knobs
from mxcluster.model.verdict import Verdict
from mxcluster.node import processes

PROJECT = pathlib.Path(mxcluster.__file__).resolve().parents[2]
INTERRUPTED = 130  # as in shells: 128 + SIGINT


def run(inventories: List[str], knobs: Knobs) -> int:
    """Run train.yml with `knobs`, and return the exit status of the job (see `status_of`).

    The child reads the knobs from a file that only this user can read. Ansible evaluates no
    template in them, so that words with braces reach the script unchanged. `inventories`: absolute
    paths, [] for the inventory of ansible.cfg. Raises BadInput if the project is missing.
    """
    program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
    if not (PROJECT / "train.yml").is_file() or not os.path.isfile(program):
        raise BadInput(
            "there is no train.yml in %s, or no ansible-playbook beside %s: run `make venv` in the "
            "project, and use its .venv/bin/mxcluster" % (PROJECT, sys.executable)
        )
    with tempfile.TemporaryDirectory(prefix="mxcluster-launch-") as folder:
        given, verdict = os.path.join(folder, "knobs.yml"), os.path.join(folder, "verdict.json")
        with open(os.open(given, os.O_WRONLY | os.O_CREAT, 0o600), "w") as stream:
            yaml.dump(knobs, stream, Dumper=_Verbatim)
        chosen = [word for path in inventories for word in ("-i", path)]
        argv = [program, *chosen, "train.yml", "-e", "@" + given]
        code = _wait(argv, dict(os.environ, PWD=str(PROJECT), MXCLUSTER_VERDICT=verdict))
        return status_of(code, read_json(verdict, Verdict.decode))


class _Verbatim(yaml.SafeDumper):
    """Writes each string with the tag `!unsafe`, in which Ansible evaluates no template."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True: Ansible's loader gets each value in its place."""
        return True


_Verbatim.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("!unsafe", text, style='"')
)


def _wait(argv: List[str], environment: Dict[str, str]) -> int:
    """Run `argv` in the project's folder, and return the exit status.

    The child gets SIGINT when this process gets SIGTERM, so that the child ends the job.
    """
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
        except KeyboardInterrupt:  # the terminal has sent SIGINT to the child, too
            continue


def status_of(code: int, verdict: Optional[Verdict]) -> int:
    """Return the exit status of a job.

    A successful job gives 0. If a process of the job failed first, the status of this process
    counts, or 128 + n after signal n. Without such a process the function returns `code` or 1.

    Args: `code` the exit status of ansible-playbook; `verdict` None without a verdict.
    """
    if verdict is None or verdict.ok:
        return code
    failed = verdict.first_failure.exit_code if verdict.first_failure else None
    if failed:
        return failed if failed > 0 else 128 - failed
    return INTERRUPTED if code == INTERRUPTED else 1
