"""Define the messages of the rendezvous (see `mxcluster.node.rendezvous`)."""

from mxcluster.model import names
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import flag, matching, number

_host = matching(r"[^\x00-\x1f\x7f]{1,255}", "the name of a host")
_nonce = matching(r"[0-9A-Za-z]{1,64}", "a nonce")
_proof = matching(r"[0-9a-f]{64}", "a proof")


class Query(Record):
    """The first message of the caller."""

    job: str = field(names.job_id)
    host: str = field(_host)
    """The node that asks."""
    nonce: str = field(_nonce)
    transfer: bool = field(flag, default=False)
    """True if a measurement of the bandwidth follows on this connection."""


class Reply(Record):
    """The message of the answerer, with the proof that the answerer has the job's token."""

    job: str = field(names.job_id)
    host: str = field(_host)
    """The node that answers."""
    time: float = field(number)
    """The clock of this node in unix seconds."""
    nonce: str = field(_nonce)
    proof: str = field(_proof)


class Confirmation(Record):
    """The last message of the caller, with the proof that the caller has the job's token."""

    proof: str = field(_proof)
