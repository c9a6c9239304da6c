"""Helpers for lists of hosts, processes and numbers. Pure."""

from typing import Dict, Iterable, List, Sequence, Tuple, TypeVar

Key = TypeVar("Key")
Item = TypeVar("Item")


def unique(items: Iterable[Item]) -> List[Item]:
    """Return the distinct items, in the order of their first appearance."""
    return list(dict.fromkeys(items))


def grouped(pairs: Iterable[Tuple[Key, Item]]) -> Dict[Key, List[Item]]:
    """Return {key: its items}, in the order of `pairs`, from pairs (key, item)."""
    groups = {}  # type: Dict[Key, List[Item]]
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def spans(numbers: Iterable[int], joint: str = "-") -> List[str]:
    """Return runs of consecutive numbers as texts: ["9091-9093", "9200"].

    `joint` stands between the first and the last number of a run.
    """
    runs = []  # type: List[List[int]]
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else "%d%s%d" % (run[0], joint, run[-1]) for run in runs]


def several(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 node", "2 nodes".

    Args: `plural` of the noun, "" for the noun with an s.
    """
    return "%d %s" % (number, noun if number == 1 else plural or noun + "s")


def listed(words: Sequence[str]) -> str:
    """Return the words, at least one, as "a", "a and b" or "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
