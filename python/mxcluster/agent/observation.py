"""Observe the processes of a job on this node, and their peers on other nodes."""

import time
from typing import Dict, List, Mapping, Optional, Tuple

from mxcluster.agent.stuck_processes import Sight
from mxcluster.model.plan import NodePlan, Peer
from mxcluster.model.status import Part, Pulse
from mxcluster.node import addresses, processes
from mxcluster.training import pulse_file


class Observer:
    """Observes the processes of `plan`, this node's part of the plan, in the job folder `path`.

    Only the monotonic clock counts. A suspended node or a changed system time must not look like a
    stall. A child is the pid of the agent's child, which runs the process or the client of its
    container.
    """

    def __init__(self, path: str, plan: NodePlan) -> None:
        self.path = path
        self.began: Dict[int, float] = {}  # child -> time of the process's start
        self.held: Dict[int, float] = {}  # child -> time of the stop by a signal
        self.pulses: Dict[int, Tuple[Optional[Pulse], float]] = {}  # child -> pulse, last change
        self.peers = {
            (peer.address, peer.port): peer for peer in plan.peers if peer.host != plan.host
        }
        # Of other jobs: the agent observes its processes from before their start on.
        self.earlier = addresses.connections() if self.peers else set()

    def begin(self, child: int) -> None:
        """Record the start of the process of `child`."""
        self.began[child] = time.monotonic()

    def sights(self, parts: Mapping[int, Part], contained: Mapping[int, bool]) -> List[Sight]:
        """Return the observed state of each running process.

        Args: `parts` {child: the process's state in the status}; `contained` {child: True for a
        process in a container}.
        """
        found = [self._sight(child, part, contained[child]) for child, part in parts.items()]
        return [sight for sight in found if sight]

    def _sight(self, child: int, part: Part, contained: bool) -> Optional[Sight]:
        now, process = time.monotonic(), part.pid or child
        line = processes.entry(process)
        if line is None:
            return None
        frozen = contained and processes.is_frozen(process)
        if line.state == processes.HELD or frozen:
            self.held.setdefault(child, now)
        else:
            self.held.pop(child, None)
        last, changed = self.pulses.get(child, (None, now))
        # The last pulse counts if the pulse file is deleted or damaged.
        pulse = pulse_file.read(pulse_file.file_of(self.path, part.name)) or last
        if child not in self.pulses or last != pulse:
            changed = now
        self.pulses[child] = pulse, changed
        return Sight(
            part.name,
            part.role,
            now - self.began[child],
            now - self.held.get(child, now),
            pulse,
            now - changed,
            processes.queued(process),
            frozen,
        )

    def unanswered(self) -> List[Peer]:
        """Return the peers on other nodes that do not acknowledge data from this node."""
        if not self.peers:
            return []
        found = addresses.unanswered(self.earlier)
        return [self.peers[where] for where in sorted(found & set(self.peers))]
