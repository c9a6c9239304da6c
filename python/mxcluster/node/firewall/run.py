"""Run a firewall program, and make the comment that marks the rules of a job."""

from typing import List, Optional

from mxcluster import calls
from mxcluster.errors import MxclusterError


def run(argv: List[str], stdin: Optional[str] = None) -> str:
    """Run the program `argv` and return its stdout. `stdin`: the text that the program reads.

    Raises MxclusterError if the program fails or is missing.
    """
    code, out, err = calls.run(argv, stdin=stdin or "", folder="/")
    if code == calls.MISSING:
        raise MxclusterError("%s: install this program" % err)
    if code:
        raise MxclusterError(
            "the firewall program `%s` ended with status %d on this node: %s"
            % (" ".join(argv[:4]), code, err.strip())
        )
    return out


def comment(job: str) -> str:
    """Return the comment that marks each rule of `job`."""
    return "mxcluster %s" % job
