"""Define the ticket of a job that waits for room on a node."""

from typing import Optional, Sequence, Tuple

from mxcluster.model import names
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, ipv4, optional, or_empty, real, unix_time, whole, words

MOST_REASONS = 20


class Ticket(Record):
    """The place of a job in the queue of a node, and the ports and GPUs that the job may take."""

    job: str = field(names.job_id)
    since: float = field(unix_time)
    """The time of the controller at which the job began to wait, the same on all nodes."""
    lease: float = field(real(0.01, 200000))
    """The seconds after a renewal at which the ticket lapses."""
    address: Optional[str] = field(optional(ipv4), default=None)
    """The address of the ports."""
    ports: Sequence[int] = field(each(whole(0, 65535), 100000), default=[])
    gpus: Sequence[int] = field(each(whole(0, names.MOST_GPU), 1024), default=[])
    """The numbers of the GPUs that the job may take."""
    after: str = field(or_empty(names.job_id), default="")
    """The job whose end this job awaits, without ports and GPUs of its own yet; "" for none."""
    reasons: Sequence[str] = field(each(words, MOST_REASONS), default=[])
    """The lines of the controller about the ports and GPUs that the node lacks."""

    @property
    def place(self) -> Tuple[float, str]:
        """The place in the queue. The lowest place is the first, and all nodes have one order."""
        return self.since, self.job


class StoredTicket(Ticket):
    """A ticket in its file on a node."""

    renewed: float = field(real(0, 1e11))
    """The time of the last renewal by the node's monotonic clock, in seconds since its boot."""
