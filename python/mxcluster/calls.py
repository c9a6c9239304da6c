"""Run a program of the system to its end, and return its output."""

import subprocess
from typing import Mapping, NamedTuple, Optional, Sequence

LATE = 124  # the exit status of the program timeout
MISSING = 127  # the exit status of shells for a program that cannot be run


class Ended(NamedTuple):
    """The end of a program. A negative status is minus the number of the killing signal."""

    status: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """The last line of stderr, "" without one."""
        return (self.err.strip().splitlines() or [""])[-1]


def run(
    argv: Sequence[str],
    seconds: Optional[float] = None,
    environment: Optional[Mapping[str, str]] = None,
    stdin: str = "",
    folder: Optional[str] = None,
) -> Ended:
    """Run the program `argv` for at most `seconds`, by default without a limit. Return its end.

    The status is LATE after a kill of a late program, and MISSING for a program that cannot be run.
    `err` then holds the reason.

    Args: `environment` all variables of the program, by default those of this process; `stdin` the
    text that the program reads; `folder` its working directory, by default that of this process.
    """
    try:
        done = subprocess.run(
            argv,
            input=stdin.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=folder,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as late:
        printed = (late.stdout or b"").decode(errors="replace")
        return Ended(LATE, printed, "no answer within %g s" % late.timeout)
    except OSError as error:
        reason = "cannot run `%s` on this node: %s" % (argv[0], error.strerror)
        return Ended(MISSING, "", reason)
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return Ended(done.returncode, out, err)
