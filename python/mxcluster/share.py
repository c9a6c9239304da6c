"""Public interface for scripts: the part of the data that this worker trains on.

`docs/script-data.md` describes the functions. Outside of a job there is one worker with all data.
"""

from mxcluster.training.data_share import (
    Sampler,
    index,
    indices,
    num_parts,
    num_workers,
    part_index,
)

__all__ = ["Sampler", "index", "indices", "num_parts", "num_workers", "part_index"]
