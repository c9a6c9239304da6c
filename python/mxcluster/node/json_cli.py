"""Print the result of a program on a node as one JSON object on stdout.

The exit status is 0. On an error the object is {"error": text}, and the exit status is 1.
"""

import json
import sys
import traceback
from typing import Callable, Dict, Tuple, TypeVar, Union

from mxcluster.errors import MxclusterError, of_system

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


def give(run: Callable[[], object]) -> int:
    """Print the result of run() (see `of`) as JSON, and return the exit status."""
    result, code = of(run)
    tell(result)
    return code
