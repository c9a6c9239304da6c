"""Values that no field for whole numbers or short JSON accepts."""

NOT_WHOLE = ["1", True, [], {}, -1, 1.5, float("nan"), float("inf"), 10**400]


def deep(levels):
    """Return a list in a list and so on, of so many levels."""
    value = []
    for _ in range(levels):
        value = [value]
    return value
