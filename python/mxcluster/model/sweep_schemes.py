"""Define the schemes that compare.yml trains, one row for each name of the knob `schemes`."""

from typing import Mapping, NamedTuple

from mxcluster import schemes

FASTEST = "fastest"
GROUPED = "gsp"
RINGMASTER = "ringmaster"
BALANCED = "balanced"
BY_DEADLINE = "deadline"
SOLO = "solo"  # the scheme in the records of the jobs with one worker, whose speeds are the limit


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
    # Ringmaster ASGD (Maranjyan et al., ICML 2025): an update that is too late is dropped, and no
    # other update is made smaller. The comparison adds gsync_max_y, the rule's threshold R.
    Row(RINGMASTER, "Ringmaster", {"kv": "dist_gsync", "gsync_y": "one"}),
    Row(BALANCED, "load-balanced BSP", {"kv": "dist_sync", "balance": "batch"}),
    Row(BY_DEADLINE, "BSP with a deadline", {"kv": "dist_sync", "balance": "deadline"}),
    # The plan of a dist_gsync job decides which workers form the fastest group.
    Row(FASTEST, "fastest group alone", {"kv": "dist_sync"}),
)
NAMES = tuple(row.name for row in ROWS)
USUAL = ("bsp", "asp", "ssp")  # the best of them is a rival of the schemes OWN
OWN = (GROUPED, RINGMASTER, BALANCED, BY_DEADLINE)
# {option: the only values of `kv` that accept it}. In a sweep, a job with another `kv` gets the
# option's default, so that a user can give one value for all jobs that accept the option.
ONLY_KV = dict(
    {name: schemes.with_knob(name) for scheme in schemes.SCHEMES for name in scheme.knobs},
    balance=[one.name for one in schemes.SCHEMES if schemes.sums_every_step(one)],
    # Under the other schemes, all workers train equal numbers of batches, whatever their shares.
    **{
        name: [
            one.name
            for one in schemes.SCHEMES
            if one.is_distributed and one.waits != schemes.EVERYBODY
        ]
        for name in ("data_allocator", "data_sharding_file")
    },
)


def of(name: str) -> Row:
    """Return the Row with this name."""
    return next(row for row in ROWS if row.name == name)
