"""Helpers for lists of hosts, processes and numbers. All functions are pure."""

from typing import Dict, Iterable, List, Sequence, Tuple, TypeVar

Key = TypeVar("Key")
Item = TypeVar("Item")


def unique(items: Iterable[Item]) -> List[Item]:
    """Return the distinct items of `items`, in the order of their first appearance."""
    return list(dict.fromkeys(items))


def grouped(pairs: Iterable[Tuple[Key, Item]]) -> Dict[Key, List[Item]]:
    """Group `pairs` of (key, item) by key. Return {key: [item, ...]} in the order of `pairs`."""
    groups = {}  # type: Dict[Key, List[Item]]
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def spans(numbers: Iterable[int], joint: str = "-") -> List[str]:
    """Return the runs of consecutive `numbers` as strings, such as ["9091-9093", "9200"].

    `joint`: the text between the first and the last number of a run.
    """
    runs = []  # type: List[List[int]]
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else "%d%s%d" % (run[0], joint, run[-1]) for run in runs]


def several(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 node" or "2 nodes".

    Args: `plural` the plural of the noun, "" for the noun with an s.
    """
    return "%d %s" % (number, noun if number == 1 else plural or noun + "s")


def listed(words: Sequence[str]) -> str:
    """Join `words` (at least one) to a string such as "a", "a and b" or "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def quantile(values: Sequence[float], part: float) -> float:
    """Return the quantile `part` (0 to 1) of `values` (at least one), interpolated linearly.

    Values may be infinite.
    """
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    if place == low or ordered[low] == ordered[high]:
        return ordered[low]
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def aligned(table: Sequence[Sequence[str]]) -> List[str]:
    """Return the rows of a table as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*table)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table
    ]
