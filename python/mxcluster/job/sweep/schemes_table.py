"""Define the schemes that compare.yml trains, one row for each name of the knob `schemes`."""

from typing import Dict, List, NamedTuple

from mxcluster.job.knob_table import OPTIONS
from mxcluster.job.options import BALANCED as SUMMING

FASTEST = "fastest"
GROUPED = "gsp"
BALANCED = "balanced"


class Row(NamedTuple):
    """One scheme of compare.yml: name in knobs and jobs, title in tables, knobs of train.yml."""

    name: str
    title: str
    knobs: Dict[str, str]


ROWS = (
    Row("bsp", "BSP", {"kv": "dist_sync"}),
    Row("asp", "ASP", {"kv": "dist_async"}),
    Row("ssp", "SSP", {"kv": "dist_ssync"}),
    Row(GROUPED, "GSP", {"kv": "dist_gsync"}),
    Row(BALANCED, "load-balanced BSP", {"kv": "dist_sync", "balance": "batch"}),
    # The plan of a dist_gsync job decides which workers form the fastest group.
    Row(FASTEST, "fastest group alone", {"kv": "dist_sync"}),
)
NAMES = tuple(row.name for row in ROWS)
# {option: the only values of `kv` that accept it}. In a sweep, a job with another `kv` gets the
# option's default, so that a user can give one value for all jobs that accept the option.
ONLY_KV = {
    "staleness": ("dist_ssync",),
    "balance": SUMMING,
    "data_allocator": ("dist_gsync",),
    "data_sharding_file": ("dist_gsync",),
    "gsync_y": ("dist_gsync",),
    "gsync_compensation": ("dist_gsync",),
    "gsync_max_y": ("dist_gsync",),
}


def of(name: str) -> Row:
    """Return the Row with this name."""
    return next(row for row in ROWS if row.name == name)


def available() -> List[str]:
    """Return the names of the rows with knobs that train.yml supports."""
    known = {option.name for option in OPTIONS}
    return [row.name for row in ROWS if set(row.knobs) <= known]
