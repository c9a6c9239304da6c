"""Print the result of a program on a node as one JSON object on stdout.

The exit status is 0. On an error the object is {"error": text}, and the exit status is 1.
"""

import contextlib
import gc
import json
import sys
import traceback
from typing import Callable, Dict, Optional, Sequence, Tuple, TypeVar, Union

from mxcluster.errors import DAMAGED, MxclusterError, of_system

T = TypeVar("T")


def of(run: Callable[[], T]) -> Tuple[Union[T, Dict[str, str]], int]:
    """Call run(). Return (result, 0), or ({"error": text}, 1) if the call raises.

    The number is the exit status.
    """
    try:
        return run(), 0
    except MxclusterError as error:
        return {"error": str(error)}, 1
    except OSError as error:
        return {"error": of_system(error)}, 1
    except Exception as error:
        traceback.print_exc()  # a bug of mxcluster: the traceback goes to stderr
        return {
            "error": "%s: %s (an error in mxcluster itself: please report this error)"
            % (type(error).__name__, error)
        }, 1


def tell(answer: object) -> None:
    """Print `answer` as a line of JSON with one system call.

    With `python -u`, print() writes the end of the line by itself. An engine such as mpirun could
    then mix the lines of several nodes.
    """
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def error_in(lines: Sequence[str]) -> Optional[str]:
    """Return the last error that a program has printed (see `of`), None without one.

    `lines`: the lines of its output, among which may be lines of other programs.
    """
    for line in reversed(lines):
        with contextlib.suppress(*DAMAGED):
            return str(json.loads(line)["error"])
    return None


def leave(code: int) -> None:
    """End this process with the exit status `code`, and without a last garbage collection.

    The collection would take a tenth of the time of a short command.
    """
    if hasattr(gc, "freeze"):  # since Python 3.7
        gc.freeze()
    sys.exit(code)


def give(run: Callable[[], object]) -> int:
    """Print the result of run() (see `of`) as JSON, and return the exit status."""
    result, code = of(run)
    tell(result)
    return code
