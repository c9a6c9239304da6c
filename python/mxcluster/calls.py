"""Call programs of the system."""

import subprocess
from typing import List, Mapping, Optional, Tuple

NOT_FOUND = 127  # as in shells


def call(
    argv: List[str],
    stdin: str = "",
    seconds: Optional[float] = None,
    environment: Optional[Mapping[str, str]] = None,
) -> Tuple[int, str, str]:
    """Run the program `argv` in /, and return (exit status, stdout, stderr).

    If the program is missing or runs longer than `seconds`, the exit status is NOT_FOUND, and
    stderr has the reason. Args: `stdin` the text that the program reads; `environment` all its
    variables, by default those of this process.
    """
    try:
        done = subprocess.run(
            argv,
            input=stdin.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=seconds,
            env=environment,
            cwd="/",
        )
    except OSError as error:
        return NOT_FOUND, "", "cannot run `%s` on this node: %s" % (argv[0], error.strerror)
    except subprocess.TimeoutExpired as error:
        return NOT_FOUND, "", str(error)
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return done.returncode, out, err
