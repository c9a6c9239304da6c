"""Keep the tickets of the jobs that wait for room on this node.

A ticket is a file in the folder of all jobs. The controller of a waiting job renews the ticket with
each poll, so that the ticket of a dead controller lapses as a lease does. A controller that gives
up withdraws the ticket at once. Jobs with a later ticket, and jobs without a ticket, find the ports
and GPUs of a valid ticket in use.
"""

import contextlib
import json
import os
import time
from typing import List, Optional

from mxcluster.file_io import read_intact, replace
from mxcluster.model.names import is_job_id
from mxcluster.model.ticket import StoredTicket, Ticket

FOLDER = ".tickets"  # in the folder of all jobs; the id of a job has another first character
END = ".json"
MOST = 1000  # tickets that are read


def renew(root: str, ticket: Ticket) -> None:
    """Write or renew `ticket`, and remove the tickets that have lapsed.

    A lapsed ticket whose controller lives after all returns to its place with the next renewal.

    Args: `root` the folder of all job folders.
    """
    os.makedirs(os.path.join(root, FOLDER), 0o700, exist_ok=True)
    stored = StoredTicket(renewed=time.monotonic(), **vars(ticket))
    replace(_path(root, ticket.job), json.dumps(stored.encode()), 0o600)
    valid = {one.job for one in _valid(root)}
    for job in _jobs(root):
        if job not in valid:
            remove(root, job)


def remove(root: str, job: str) -> None:
    """Remove the ticket of `job`, if there is one. Args: `root` as for `renew`."""
    with contextlib.suppress(OSError):  # the ticket then lapses
        os.remove(_path(root, job))


def ahead_of(root: str, job: Optional[str]) -> List[Ticket]:
    """Return the valid tickets before that of `job`, in the order of the queue.

    If `job` has no valid ticket, the function returns all valid tickets of other jobs.

    Args: `root` as for `renew`.
    """
    valid = _valid(root)
    own = next((one for one in valid if one.job == job), None)
    others = [one for one in valid if one.job != job]
    ahead: List[Ticket] = [one for one in others if own is None or one.place < own.place]
    return sorted(ahead, key=lambda one: one.place)


def _valid(root: str) -> List[StoredTicket]:
    """Return all tickets that are whole and have not lapsed.

    The monotonic clock begins anew with each boot, so a ticket of an earlier boot lapses, too.
    """
    found = [read_intact(_path(root, job), StoredTicket.decode) for job in _jobs(root)]
    now = time.monotonic()
    return [one for one in found if one and 0 <= now - one.renewed <= one.lease]


def _jobs(root: str) -> List[str]:
    try:
        listed = sorted(os.listdir(os.path.join(root, FOLDER)))
    except OSError:
        return []
    jobs = [name[: -len(END)] for name in listed if name.endswith(END)]
    return [job for job in jobs if is_job_id(job)][:MOST]


def _path(root: str, job: str) -> str:
    return os.path.join(root, FOLDER, job + END)
