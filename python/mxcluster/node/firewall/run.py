"""Run a firewall program, and make the comment that marks the rules of a job."""

import subprocess
from typing import List, Optional

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
        raise MxclusterError(
            "cannot run `%s` on this node (%s): install this program" % (argv[0], error.strerror)
        ) from error
    if done.returncode != 0:
        raise MxclusterError(
            "the firewall program `%s` ended with status %d on this node: %s"
            % (" ".join(argv[:4]), done.returncode, done.stderr.decode(errors="replace").strip())
        )
    return done.stdout.decode(errors="replace")


def comment(job: str) -> str:
    """Return the comment that marks each rule of `job`."""
    return "mxcluster %s" % job
