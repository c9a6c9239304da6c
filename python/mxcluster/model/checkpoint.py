"""Define the manifests of checkpoints, and the offer of a node to send checkpoints."""

import re
from typing import Mapping, Optional, Sequence

from mxcluster.model import names
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, matching, optional, real, table, text, whole, words

CURE = "use another checkpoint"
# A file of a checkpoint. A script has the files of its checkpoint in a folder, worker-0-0003/a.b.
FILE = re.compile(
    r"(?P<name>(?P<network>[A-Za-z0-9][A-Za-z0-9._-]*)-(?P<epoch>[0-9]{4,9}))"
    r"((\.server-[0-9]+)?\.(params|npz|json)|(/[A-Za-z0-9_][A-Za-z0-9._+=@, -]{0,199}){1,8})"
)
LONGEST = 400  # characters of such a name
LARGEST_MANIFEST = 64 * 1024  # bytes; a poll carries it
MOST_IN_PROGRESS = 500  # workers in a Progress, so that manifests and plans stay small

file_name = matching(FILE.pattern, "the name of a checkpoint's file", LONGEST)


class FileDigest(Record):
    """The size and digest of a file."""

    sha256: str = field(names.digest)
    bytes: int = field(whole())


class Manifest(Record):
    """The manifest of one server's file, or the common part of both kinds of manifests."""

    files: Mapping[str, FileDigest] = field(table(file_name, record(FileDigest)))
    """{file beside the manifest: digest}."""
    id: str = field(matching(r"[A-Za-z0-9-]{1,64}", "the id of a checkpoint"), default="")
    """All parts of one checkpoint share this id."""


class ServerManifest(Manifest):
    """The manifest of the optimizer's states of one server."""

    rank: int = field(whole(0, 100000))
    """The rank of the server."""
    servers: int = field(whole(0, 100000))


class Progress(Record):
    """What the workers know of each other with `balance=deadline`, with lists by worker."""

    samples: int = field(whole(1))
    """The number of samples of an epoch."""
    seconds: Optional[float] = field(optional(real(0, 1e9)), default=None)
    """The deadline T of the next step, None before all speeds are known."""
    speeds: Sequence[float] = field(each(real(0, 1e15), MOST_IN_PROGRESS))
    """The smoothed speed of each worker in samples per second, 0 if unknown."""
    passes: Sequence[int] = field(each(whole(), MOST_IN_PROGRESS))
    """The number of the pass of each worker through its shard, from 0."""
    positions: Sequence[int] = field(each(whole(), MOST_IN_PROGRESS))
    """The samples that each worker has trained of this pass."""


class CheckpointManifest(Manifest):
    """The manifest of a whole checkpoint."""

    epoch: int = field(whole(0, 10**9))
    """The number of trained epochs."""
    servers: int = field(whole(0, 100000))
    """The number of servers with a file."""
    network: str = field(words, default="")
    kv: Optional[str] = field(optional(words), default=None)
    seed: Optional[int] = field(optional(whole(-(2**63))), default=None)
    workers: Optional[int] = field(optional(whole()), default=None)
    batch_size: Optional[int] = field(optional(whole(1, 2**31)), default=None)
    batch_sizes: Optional[Sequence[int]] = field(
        optional(each(whole(1, 2**31 - 1), 100000)), default=None
    )
    """The balanced batch size of each worker; its planned samples of a step with a Progress."""
    progress: Optional[Progress] = field(optional(record(Progress)), default=None)
    accuracy: Optional[float] = field(optional(real(0, 1)), default=None)
    """The accuracy of worker 0 on held-out samples, None if it is unknown."""


class Offer(Record):
    """The manifests that a node has of checkpoints. The controller fetches the held checkpoint."""

    held: str = field(text, default="")
    """The name of the held checkpoint, "" without one."""
    parts: Mapping[str, str] = field(table(text, text, 100000), default={})
    """{file name of a manifest: its text}."""

    @property
    def newest(self) -> str:
        """The name of the newest checkpoint whose own manifest is there, "" without one.

        The node of worker 0, or of the worker of a script that saves, has these manifests.
        """
        found = [match for match in map(FILE.fullmatch, self.parts) if match]
        whole = [match for match in found if match.group() == match.group("name") + ".json"]
        epochs = [(int(match.group("epoch")), match.group("name")) for match in whole]
        return max(epochs, default=(0, ""))[1]
