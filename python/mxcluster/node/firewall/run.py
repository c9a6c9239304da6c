"""How the programs of the firewalls are run."""
import subprocess
from typing import List, Optional, Sequence, Tuple

from mxcluster.errors import MxclusterError


def run(argv: List[str], stdin: Optional[str] = None) -> str:
    """The output of a program. MxclusterError with its message if it fails or is not there."""
    try:
        done = subprocess.run(argv, input=(stdin or "").encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise MxclusterError("`%s` cannot be run: %s" % (argv[0], error.strerror)) from error
    if done.returncode != 0:
        raise MxclusterError("`%s` ended with status %d: %s"
                             % (" ".join(argv[:4]), done.returncode, done.stderr.decode(errors="replace").strip()))
    return done.stdout.decode(errors="replace")


def ranges(ports: Sequence[int]) -> List[Tuple[int, int]]:
    """[(first, last), ...] of runs of ports."""
    runs = []  # type: List[Tuple[int, int]]
    for port in sorted(ports):
        if runs and runs[-1][1] == port - 1:
            runs[-1] = (runs[-1][0], port)
        else:
            runs.append((port, port))
    return runs


def spans(ports: Sequence[int], joint: str = "-") -> List[str]:
    """`ranges` as the firewalls write them: ["9091-9093", "9200"]."""
    return [str(first) if first == last else "%d%s%d" % (first, joint, last) for first, last in ranges(ports)]


def comment(job: str) -> str:
    """The comment that marks a rule as one of the job's."""
    return "mxcluster %s" % job
