"""Share the state of a job's nodes between the forks of one run of Ansible.

Each fork runs the tasks of one node. The board is a folder in the temporary folder of this run of
Ansible, with a few small files for each node.
"""

import contextlib
import json
import os
import time
from typing import Dict, List, Mapping, Optional

from mxcluster.file_io import read_json, replace
from mxcluster.job import stall_cause
from mxcluster.model.record import Record, encode, field, record
from mxcluster.model.shapes import table, text, unix_time
from mxcluster.model.status import LatestPulse, Pulse

# Prefix of a host's file during an outage of the host. The controller then polls the other nodes
# more often.
SILENT = ".silent-"
PULSE = ".pulse-"  # prefix of a host's file with the pulses of the host's workers
SETTLED = 5.0  # minimum seconds without a change after which a pulse counts for a diagnosis


class _SharedPulse(Record):
    """The latest pulse of a worker, and the time of its last change by the controller's clock."""

    pulse: Pulse = field(record(Pulse))
    since: float = field(unix_time)


_pulses = table(text, record(_SharedPulse))


class Board:
    """The board of a job, as the fork of `host` uses it.

    Args: `path` of the folder, "" for a board without files, which has no other node.
    """

    def __init__(self, path: str, host: str) -> None:
        self._path, self._host = path, host

    def post_failure(self) -> None:
        """Tell the other forks that the part of the job on this node has failed."""
        self._create(self._host)

    def has_other_failure(self) -> bool:
        """Return True if the part of the job on another node has failed."""
        return any(name != self._host and not name.startswith(".") for name in self._names())

    def mark_silent(self) -> None:
        """Tell the other forks that this node is silent."""
        self._create(SILENT + self._host)

    def unmark_silent(self) -> None:
        """Remove the mark of `mark_silent`, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self._path, SILENT + self._host))

    def has_silent_node(self) -> bool:
        """Return True if a node is silent."""
        return any(name.startswith(SILENT) for name in self._names())

    def blocking_worker(
        self, pulses: Mapping[str, LatestPulse], together: List[List[int]]
    ) -> Optional[str]:
        """Return the name of a worker of this node that blocks other workers for ever, else None.

        A pulse is the content of a worker's pulse file, and changes in each kv-store call. The
        method first writes the node's pulses to the board. Then `stall_cause.uneven` judges all
        pulses on the board that are constant for SETTLED seconds.

        Args: `pulses` {worker name: latest pulse} of this node; `together` lists of worker indices,
        see `Options` in node_arguments.
        """
        if not together or not self._path:
            return None
        now = time.time()
        own = {
            name: _SharedPulse(pulse=pulse, since=now - pulse.idle)
            for name, pulse in pulses.items()
        }
        os.makedirs(self._path, exist_ok=True)
        replace(os.path.join(self._path, PULSE + self._host), json.dumps(encode(own)))
        settled: Dict[str, Pulse] = {}
        for name in self._names():
            if name.startswith(PULSE) and not name.endswith(".part"):
                of_host = read_json(os.path.join(self._path, name), _pulses) or {}
                settled.update(
                    (worker, shared.pulse)
                    for worker, shared in of_host.items()
                    if now - shared.since >= SETTLED
                )
        found = stall_cause.uneven(settled, together)
        return found if found in pulses else None

    def _create(self, name: str) -> None:
        if self._path:
            os.makedirs(self._path, exist_ok=True)
            open(os.path.join(self._path, name), "w").close()

    def _names(self) -> List[str]:
        return os.listdir(self._path) if os.path.isdir(self._path) else []
