"""Run a firewall's program, and write ports and comments in the form of firewall rules."""

import subprocess
from typing import List, Optional, Sequence, Tuple

from mxcluster.errors import MxclusterError


def run(argv: List[str], stdin: Optional[str] = None) -> str:
    """Run the program `argv` and return its stdout. `stdin`: the text that the program reads.

    Raises MxclusterError if the program fails or is missing.
    """
    try:
        done = subprocess.run(
            argv, input=(stdin or "").encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise MxclusterError("`%s` cannot be run: %s" % (argv[0], error.strerror)) from error
    if done.returncode != 0:
        raise MxclusterError(
            "`%s` ended with status %d: %s"
            % (" ".join(argv[:4]), done.returncode, done.stderr.decode(errors="replace").strip())
        )
    return done.stdout.decode(errors="replace")


def ranges(ports: Sequence[int]) -> List[Tuple[int, int]]:
    """Return the runs of consecutive ports: [(first, last), ...]."""
    runs = []  # type: List[Tuple[int, int]]
    for port in sorted(ports):
        if runs and runs[-1][1] == port - 1:
            runs[-1] = (runs[-1][0], port)
        else:
            runs.append((port, port))
    return runs


def spans(ports: Sequence[int], joint: str = "-") -> List[str]:
    """Return `ranges` of `ports` as texts for a firewall: ["9091-9093", "9200"].

    `joint` stands between the first and the last port.
    """
    return [
        str(first) if first == last else "%d%s%d" % (first, joint, last)
        for first, last in ranges(ports)
    ]


def comment(job: str) -> str:
    """Return the text of the comment that marks each rule of `job`."""
    return "mxcluster %s" % job
