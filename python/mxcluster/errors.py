"""Exceptions of mxcluster, and helpers for their messages.

Every message names the wrong value, the origin of the value, and the cure.
"""

import difflib
import errno
from typing import Callable, Iterable, List, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

FULL = (errno.ENOSPC, errno.EDQUOT)  # the errors of a full disk and of a reached quota
MOST_LINES, MOST_SIGNS = 100, 2000  # lines of a message, characters of a line


class MxclusterError(Exception):
    """Base class of all errors that mxcluster reports."""


class PeerDied(MxclusterError):
    """Another process of the job has died, and this process cannot go on without that process."""


# Errors of functions that read a damaged JSON file or line. JSON with too many levels raises
# RecursionError, int() of a number such as 1e999 raises OverflowError, and a value of a wrong type
# raises the other errors. A job's processes can write any content to the files of a job folder.
DAMAGED = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
    OverflowError,
)


class BadInput(MxclusterError):
    """Invalid input of a user. The message has one line per problem.

    A message repeats text of the user, so the class makes the message safe for a terminal. The
    class escapes control characters, cuts lines at MOST_SIGNS characters, and keeps MOST_LINES
    lines.
    """

    def __init__(self, message: object) -> None:
        lines = str(message).split("\n")
        more = ["... and %d more" % (len(lines) - MOST_LINES)] if len(lines) > MOST_LINES else []
        super().__init__("\n".join([_fit(line) for line in lines[:MOST_LINES]] + more))


def refuse(problems: Iterable[str]) -> None:
    """Raise one BadInput with all `problems`, one per line. Do nothing if `problems` is empty."""
    lines = list(problems)
    if lines:
        raise BadInput("\n".join(lines))


def _fit(line: str) -> str:
    """Return `line` with control characters escaped, cut at MOST_SIGNS characters."""
    if not line.isprintable():
        line = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in line)
    return line if len(line) <= MOST_SIGNS else line[:MOST_SIGNS] + "..."


def for_each(function: Callable[[Item], Result], items: Iterable[Item]) -> List[Result]:
    """Call `function` with each item, and return the list of results.

    Raises one BadInput with the problems of all items if any call raises BadInput. So a user with
    forty nodes sees all forty mistakes at once.
    """
    results: List[Result] = []
    problems: List[str] = []
    for item in items:
        try:
            results.append(function(item))
        except BadInput as refusal:
            if str(refusal) not in problems:
                problems.append(str(refusal))
    refuse(problems)
    return results


def of_system(error: OSError, path: str = "") -> str:
    """Return the message for `error`: the path, the fault, and the cure of a full disk.

    Args: `path` in which the caller writes. Only an error of open() names its file.
    """
    is_full = error.errno in FULL
    where = error.filename or (path if is_full else "")
    text = "%s%s" % ("%s: " % where if where else "", error.strerror or error)
    return text + (": the disk is full, so make room on this disk" if is_full else "")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a hint such as " (did you mean 'x'?)", or "" if none of `names` is similar to `word`.

    The hint holds at most three names.
    """
    known = {name.lower(): name for name in names}
    close = difflib.get_close_matches(str(word).lower(), list(known), n=3, cutoff=0.6)
    return " (did you mean %s?)" % " or ".join(repr(known[name]) for name in close) if close else ""


def some(names: List[str], most: int = 6) -> str:
    """Return at most `most` names as text, with the number of the omitted names.

    Example: "a, b and 3 more".
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (" and %d more" % more if more > 0 else "")


def shown(value: object) -> str:
    """Return at most 200 characters of `value` as text for a message, with quotes for a string."""
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
