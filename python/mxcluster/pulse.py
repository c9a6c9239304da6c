"""Public interface for scripts: `mxcluster.pulse.beat()` reports progress (see docs/scripts.md).

A script that does not use the kv-store for longer than `stall_timeout` calls `beat()` now and then.
"""

from mxcluster.training.progress_file import beat

__all__ = ["beat"]
