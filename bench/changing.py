"""Measure the schemes on emulated machines whose speeds change by a factor 2 every 10 s.

Four equal workers are fast and slow in turn, each at its own times (`slowdown_changes`). So each
has 3/4 of its full speed in the mean, and no order of the workers holds for long. The windows of
the figures are whole cycles of 20 s. The groups of dist_gsync are two pairs.
"""

import pathlib
import tempfile

from bench._ground import Ground, Length, compare
from bench.unequal import BATCH, START, STEP_MS, WARM_UP, cluster

EVERY, CHANGES = 10, (1, 2)
WORKERS = [
    {"slowdown_changes": list(CHANGES), "slowdown_every": EVERY, "worker_group": group}
    for group in ("first", "first", "second", "second")
]


def main(options):
    """Print the figures of the schemes.

    Args: `options` of the command line: `turns`, `seconds` and `start`.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "4"
        where = cluster(folder, variables=WORKERS)
        cycle = EVERY * len(CHANGES)
        seconds = max(cycle, options.seconds // cycle * cycle)
        length = Length(options.start or START, WARM_UP, seconds, cycle)
        knobs = {"step_ms": STEP_MS, "data": "synthetic"}
        compare(Ground("changing", folder, where, knobs, BATCH, length), options.turns)
