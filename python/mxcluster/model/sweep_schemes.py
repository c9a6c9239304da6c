"""Define the schemes that compare.yml trains, one row for each name of the knob `schemes`."""

from typing import Mapping, NamedTuple

from mxcluster import schemes

FASTEST = "fastest"
GROUPED = "gsp"
BALANCED = "balanced"
BY_DEADLINE = "deadline"


class Row(NamedTuple):
    """One scheme of compare.yml: name in knobs and jobs, title in tables, knobs of train.yml."""

    name: str
    title: str
    knobs: Mapping[str, str]


ROWS = (
    Row("bsp", "BSP", {"kv": "dist_sync"}),
    Row("asp", "ASP", {"kv": "dist_async"}),
    Row("ssp", "SSP", {"kv": "dist_ssync"}),
    Row(GROUPED, "GSP", {"kv": "dist_gsync"}),
    Row(BALANCED, "load-balanced BSP", {"kv": "dist_sync", "balance": "batch"}),
    Row(BY_DEADLINE, "BSP with a deadline", {"kv": "dist_sync", "balance": "deadline"}),
    # The plan of a dist_gsync job decides which workers form the fastest group.
    Row(FASTEST, "fastest group alone", {"kv": "dist_sync"}),
)
NAMES = tuple(row.name for row in ROWS)
# {option: the only values of `kv` that accept it}. In a sweep, a job with another `kv` gets the
# option's default, so that a user can give one value for all jobs that accept the option.
ONLY_KV = dict(
    {name: schemes.with_knob(name) for scheme in schemes.SCHEMES for name in scheme.knobs},
    balance=[one.name for one in schemes.SCHEMES if schemes.sums_every_step(one)],
    **{
        name: [one.name for one in schemes.SCHEMES if one.waits == schemes.GROUP]
        for name in ("data_allocator", "data_sharding_file")
    },
)


def of(name: str) -> Row:
    """Return the Row with this name."""
    return next(row for row in ROWS if row.name == name)
