"""Write, check and delete checkpoints on disk. The module needs only the standard library.

The checkpoint of the network mlp after epoch 5 has these files::

    mlp-0005.params           the weights, written by worker 0
    mlp-0005.server-0.npz     the optimizer's states of one server, such as momentum
                              (`training.kvstore.optimizer_states`)
    mlp-0005.server-0.json    the manifest of this server's file: its SHA-256 and size, and an id
                              that all parts of this checkpoint share
    mlp-0005.json             the manifest of the whole checkpoint, written last

`write` writes each file under a temporary name, forces the file to disk, and renames the file. The
servers' files may lie on other nodes than the files of worker 0, until the controller fetches all
files.

While the job runs, the controller fetches one checkpoint at a time. During a slow transfer, the
job may write many new checkpoints, and each node deletes old checkpoints. To keep the files of the
transfer, worker 0 marks one checkpoint as held. All nodes keep the held checkpoint until the
controller reports that all files of this checkpoint have arrived. Then worker 0 marks the next
complete checkpoint as held.

A script saves what it likes in a folder SAVED/<worker> of the job folder. `agent.saved_files` makes
checkpoints of this folder. The second one of worker 0 has these files::

    worker-0-0002/...           the files as the script has named them
    worker-0-0002.json          the manifest of the whole checkpoint, written last
"""

import contextlib
import json
import os
import re
import shutil
from typing import (
    Callable,
    Collection,
    List,
    Match,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
)

from mxcluster.errors import BadInput
from mxcluster.file_io import read_json, sha256
from mxcluster.model.checkpoint import (
    CURE,
    CheckpointManifest,
    FileDigest,
    Manifest,
    ServerManifest,
)
from mxcluster.model.checkpoint import FILE as FILE

M = TypeVar("M", bound=Manifest)

# Folders in the job folder: saved checkpoints, and the checkpoint that the job resumes from.
FOLDER, RESUMED = "checkpoints", "resume"
# The folder in the job folder with a folder for each worker of a script: MXCLUSTER_CHECKPOINTS.
SAVED = "saved"
# Files in the job folder with the name of a checkpoint. HELD names the checkpoint that the nodes
# keep for the controller. TAKEN names the last checkpoint that the controller has fetched.
HELD, TAKEN = "held", "taken"
# The file in the job folder with a line for each worker whose saved files are no checkpoint.
UNSAVED = "unsaved"


class Checkpoint(NamedTuple):
    """A complete checkpoint on disk."""

    name: str  # network and epoch, such as "mlp-0005"
    files: List[str]  # the paths of all files
    manifest: CheckpointManifest

    @property
    def epoch(self) -> int:
        """The number of trained epochs."""
        return self.manifest.epoch


def name_of(network: str, epochs: int) -> str:
    """Return the name of a network's checkpoint after `epochs` epochs, such as "mlp-0005".

    For a script, the name of the worker is the network, and the number of the checkpoint the epoch.
    """
    return "%s-%04d" % (network, epochs)


def write(path: str, fill: Callable[[str], object]) -> None:
    """Write the file `path` so that a crash leaves no partial file with this name.

    Args: `fill(name)` writes the content into the file `name` beside `path`. Then `write` forces
    the file `name` to disk, and renames the file to `path`.
    """
    partial = path + ".partial"
    fill(partial)
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(partial, path)


def write_manifest(path: str, files: Sequence[str], manifest: Manifest) -> None:
    """Write `manifest` to `path`, with the digests of `files` in the folder of the manifest."""
    digests = {os.path.basename(name): digest(name) for name in files}
    write_digests(path, manifest.replaced(files=digests))


def write_digests(path: str, manifest: Manifest) -> None:
    """Write `manifest`, which has the digests of its files, to `path`."""
    content = manifest.encode()

    def fill(partial: str) -> None:
        with open(partial, "w", encoding="utf-8") as stream:
            json.dump(content, stream, indent=1, sort_keys=True)

    write(path, fill)


def digest(path: str) -> FileDigest:
    """Return the size and digest of the file `path`."""
    return FileDigest(sha256=sha256(path), bytes=os.path.getsize(path))


def forget(folder: str, network: str, epochs: int, spared: Collection[str] = ()) -> None:
    """Delete the network's checkpoints up to the epoch `epochs` from `folder`.

    The function spares the checkpoints with the names `spared`. The function deletes manifests
    first, so that every manifest on disk names only existing files.
    """
    found = [
        name
        for epoch, name in _files(folder, network)
        if epoch <= epochs and name_of(network, epoch) not in spared
    ]
    for name in sorted(found, key=lambda name: (not name.endswith(".json"), name)):
        try:
            os.remove(os.path.join(folder, name))
        except FileNotFoundError:  # Another server of this node deleted the file first.
            pass
    for epoch in {int(match.group("epoch")) for match in map(FILE.fullmatch, found) if match}:
        shutil.rmtree(os.path.join(folder, name_of(network, epoch)), ignore_errors=True)


def keep(folder: str, network: str, kept: int, keeps_best: bool = False) -> None:
    """Keep the last `kept` complete checkpoints of the network in `folder`, and delete older ones.

    If `folder` has fewer complete checkpoints, the function deletes nothing. With `keeps_best` the
    checkpoint `best` stays, too.
    """
    whole = [
        epoch for epoch in _epochs(folder, network) if is_there(folder, name_of(network, epoch))
    ]
    if len(whole) >= kept:
        forget(folder, network, whole[kept - 1] - 1, [best(folder, network)] if keeps_best else [])


def best(folder: str, network: str) -> str:
    """Return the name of the network's complete checkpoint with the highest accuracy in `folder`.

    The newest one of equal accuracy counts. The result is "" if no manifest has an accuracy. The
    function compares the sizes of the files with the manifests, but not the digests.
    """
    found: List[Tuple[float, int, str]] = []
    for epoch in _epochs(folder, network):
        with contextlib.suppress(BadInput):
            name, _, manifest = read(folder, name_of(network, epoch), digests=False)
            if manifest.accuracy is not None:
                found.append((manifest.accuracy, epoch, name))
    return max(found, default=(0.0, 0, ""))[2]


def hold(job_dir: str, name: str) -> str:
    """Mark checkpoint `name` as held, unless the controller still fetches an earlier checkpoint.

    Returns the name of the held checkpoint, which no node deletes. The checkpoint `name` must be
    complete.
    """
    held = read_note(job_dir, HELD)
    if held and held != read_note(job_dir, TAKEN):
        return held
    write_note(job_dir, HELD, name)
    return name


def write_note(folder: str, note: str, name: str) -> None:
    """Write the `name` of a checkpoint atomically into the file `note` in `folder`."""
    partial = os.path.join(folder, "%s.%d" % (note, os.getpid()))
    with open(partial, "w", encoding="utf-8") as stream:
        stream.write(name)
    os.replace(partial, os.path.join(folder, note))


def read_note(folder: str, note: str) -> str:
    """Return the checkpoint name in the file `note` of `folder`, or "" without a name.

    An invalid name counts as no name.
    """
    try:
        with open(os.path.join(folder, note), "rb") as stream:
            name = stream.read(300).decode("utf-8", "replace")
    except OSError:
        return ""
    return name if FILE.fullmatch(name + ".json") else ""


def is_there(folder: str, name: str) -> bool:
    """Return True if `folder` has all files of checkpoint `name`.

    The function compares the sizes of the files with the manifests, but not the digests.
    """
    try:
        return bool(read(folder, name, digests=False))
    except BadInput:
        return False


def last_complete(
    folder: str, network: str, digests: bool = True
) -> Tuple[Optional[Checkpoint], List[str]]:
    """Return (the network's last complete Checkpoint in `folder`, [problem, ...]).

    If `digests` is False, the function checks only the sizes of the files.

    The Checkpoint is None if no checkpoint is complete. The list has one message (str) for each
    later checkpoint, because all later checkpoints are incomplete or damaged.
    """
    problems: List[str] = []
    for epoch in _epochs(folder, network):
        try:
            return read(folder, name_of(network, epoch), digests), problems
        except BadInput as refusal:
            problems.append(str(refusal))
    return None, problems


def read(folder: str, name: str, digests: bool = True) -> Checkpoint:
    """Check all files of checkpoint `name` in `folder`, and return the Checkpoint.

    The manifests of the checkpoint list the size and the digest of each file. If `digests` is
    False, the function checks only the sizes. Raises BadInput with the name of the first file that
    is missing or damaged.
    """
    whole = os.path.join(folder, name + ".json")
    manifest = _checked(whole, CheckpointManifest, digests)
    files = [whole] + [os.path.join(folder, file) for file in sorted(manifest.files)]
    for rank in range(manifest.servers):
        part = os.path.join(folder, "%s.server-%d.json" % (name, rank))
        if _checked(part, ServerManifest, digests).id != manifest.id:
            raise BadInput(
                "%s and %s belong to different saves of this epoch: %s" % (part, whole, CURE)
            )
        files += [part, part[: -len("json")] + "npz"]
    return Checkpoint(name, files, manifest)


def _checked(path: str, kind: Type[M], digests: bool = True) -> M:
    """Check the files that the manifest `path` lists, and return the manifest.

    If `digests` is False, the function checks only the sizes of the files. Raises BadInput with the
    name of the first file that is missing or damaged.
    """
    try:
        manifest = read_json(path, kind.decode, CURE)
        for name, expected in manifest.files.items() if manifest else ():
            file = os.path.join(os.path.dirname(path), name)
            if not (
                digest(file) == expected if digests else os.path.getsize(file) == expected.bytes
            ):
                raise BadInput("%s differs from its digest or size in %s: %s" % (file, path, CURE))
    except OSError as error:
        raise BadInput(
            "%s cannot be read (%s): %s" % (error.filename, error.strerror, CURE)
        ) from error
    if manifest is None:
        raise BadInput("%s does not exist: %s" % (path, CURE))
    return manifest


def networks(folder: str) -> List[str]:
    """Return the names of the networks with checkpoints in `folder`, sorted.

    The checkpoints may be incomplete.
    """
    return sorted({match.group("network") for match in _matches(folder)})


def workers(folder: str) -> List[str]:
    """Return the workers of a script with checkpoints in `folder`, in the order of their indices.

    The checkpoints may be incomplete.
    """
    found = [name for name in networks(folder) if re.fullmatch("worker-[0-9]{1,6}", name)]
    return sorted(found, key=lambda name: int(name.rpartition("-")[2]))


def _epochs(folder: str, network: str) -> List[int]:
    """Return the epochs of the network's checkpoints in `folder`, the last epoch first.

    The list includes the epochs of incomplete checkpoints.
    """
    return sorted({epoch for epoch, _ in _files(folder, network)}, reverse=True)


def _files(folder: str, network: str) -> List[Tuple[int, str]]:
    """Return [(epoch, name)] of the files of the network's checkpoints in `folder`."""
    matches = [match for match in _matches(folder) if match.group("network") == network]
    return [(int(match.group("epoch")), match.group()) for match in matches]


def _matches(folder: str) -> List[Match[str]]:
    """Return the match of FILE for each file of a checkpoint in `folder`."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return [match for match in map(FILE.fullmatch, names) if match]
