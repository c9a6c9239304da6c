"""Find killed daemons of mpirun on this node."""

import re
import time
from typing import Dict, Optional, Set

from mxcluster.node import processes
from mxcluster.node.mpi_channel import BEAT

# Hydra's daemon that starts the ranks. They inherit its connection to mpirun, so mpirun does not
# notice the end of a killed daemon. Intel MPI's hydra_bstrap_proxy only starts this daemon.
NAME = "hydra_pmi_proxy"
_PROGRAM = re.compile(r"(?:^|[\s\"'/])(hydra_\w+)(?=[\s\"']|$)")
SOON = 0.2  # seconds until the next look for the processes of a daemon that has just started


def killed_by_signal(pid: int) -> str:
    """Return the message about the killed daemon with the pid `pid`."""
    return (
        "%s, a daemon of mpirun (pid %d), was killed, and mpirun does not notice it: mxcluster "
        "ends the job. Find the program or the user that killed the daemon" % (NAME, pid)
    )


def starts_ranks(command: str) -> bool:
    """Return True if the shell command `command` runs Hydra's daemon that starts the ranks.

    Intel MPI's command runs hydra_bstrap_proxy, with the path of the other daemon as an argument.
    """
    program = _PROGRAM.search(command)
    return program is not None and program.group(1) == NAME


class Daemons:
    """The daemons among the descendants of the process `root` on this node.

    A daemon waits for its processes. So a killed daemon shows in processes that have outlived it.
    """

    def __init__(self, root: processes.Identity):
        self.root = root
        # The processes of each daemon so far.
        self.started: Dict[processes.Identity, Set[processes.Identity]] = {}
        # Daemons with orphans, and the time of the first look that found these.
        self.orphaned: Dict[processes.Identity, float] = {}

    @property
    def pause(self) -> float:
        """Seconds until the next look. A daemon without known processes could leave any orphans."""
        return BEAT if self.started and all(self.started.values()) else SOON

    def killed(self) -> Optional[str]:
        """Return a message if a daemon was killed, else None. Call this every `pause` seconds.

        The orphans must live for BEAT seconds, because an aborted job ends within a moment.
        """
        now = time.monotonic()
        lines = processes.table()
        for daemon in processes.family([self.root], lines):
            if processes.command_name(daemon.pid) == NAME:
                self.started[daemon] = {
                    line.identity for line in lines if line.parent == daemon.pid
                }
        self.orphaned = {
            daemon: self.orphaned.get(daemon, now)
            for daemon, started in self.started.items()
            if not processes.alive(daemon) and any(map(processes.alive, started))
        }
        killed = sorted(daemon for daemon, since in self.orphaned.items() if now - since >= BEAT)
        return killed_by_signal(killed[0].pid) if killed else None
