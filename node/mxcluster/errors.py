"""What mxcluster refuses, and how it says so.

Every message names what is wrong (the value), where it is, and what to do.
"""
import difflib
from typing import Any, Callable, Iterable, List


class MxclusterError(Exception):
    """Anything that mxcluster itself finds wrong."""


class BadInput(MxclusterError):
    """Something a person wrote cannot be used; one line per problem."""


def refuse(problems: Iterable[str]) -> None:
    """Raise one BadInput with all `problems`, a line each; do nothing if there are none."""
    lines = list(problems)
    if lines:
        raise BadInput("\n".join(lines))


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
