"""What mxcluster refuses, and how it says so.

Every message names what is wrong (the value), where it is, and what to do.
"""
import difflib
from typing import Any, Callable, Iterable, List

MOST_LINES, MOST_SIGNS = 100, 2000  # of a message


class MxclusterError(Exception):
    """Anything that mxcluster itself finds wrong."""


class BadInput(MxclusterError):
    """Something a person wrote cannot be used; one line per problem.

    A message repeats what the person wrote, so its lines are made fit for a terminal: control characters are escaped,
    long lines are cut, and of very many lines the first are kept.
    """

    def __init__(self, message: Any) -> None:
        lines = str(message).split("\n")
        more = ["... and %d more" % (len(lines) - MOST_LINES)] if len(lines) > MOST_LINES else []
        super().__init__("\n".join([_fit(line) for line in lines[:MOST_LINES]] + more))


def refuse(problems: Iterable[str]) -> None:
    """Raise one BadInput with all `problems`, a line each; do nothing if there are none."""
    lines = list(problems)
    if lines:
        raise BadInput("\n".join(lines))


def _fit(line: str) -> str:
    """A line of a message as a terminal can show it."""
    if not line.isprintable():
        line = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in line)
    return line if len(line) <= MOST_SIGNS else line[:MOST_SIGNS] + "..."


def for_each(function: Callable[[Any], Any], items: Iterable[Any]) -> List[Any]:
    """[function(item) for item in items], with the refusals of all items in one BadInput.

    A person with forty nodes wants to learn of all forty mistakes at once.
    """
    results, problems = [], []
    for item in items:
        try:
            results.append(function(item))
        except BadInput as refusal:
            if str(refusal) not in problems:
                problems.append(str(refusal))
    refuse(problems)
    return results


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """" (did you mean 'x'?)" for the names close to `word`, or an empty string."""
    known = {name.lower(): name for name in names}
    close = difflib.get_close_matches(str(word).lower(), list(known), n=3, cutoff=0.6)
    return " (did you mean %s?)" % " or ".join(repr(known[name]) for name in close) if close else ""
