"""Public interface for scripts: `mxcluster.pulse.beat()` reports progress (see docs/scripts.md).

If a script does not use the kv-store for longer than `stall_timeout`, the script must call `beat()`
now and then.
"""

from mxcluster.training.pulse_file import beat

__all__ = ["beat"]
