"""Write, check and delete checkpoints on disk. The module needs only the standard library.

After epoch 5 of mlp a checkpoint has these files::

    mlp-0005.params           the weights, written by worker 0
    mlp-0005.server-0.npz     the optimizer's states of one server, such as momentum
                              (`training.kvstore.optimizer_states`)
    mlp-0005.server-0.json    its manifest: SHA-256 and size of the file, and an id that all
                              parts of this checkpoint share
    mlp-0005.json             the manifest of the whole checkpoint, written last

Each file is written under another name, forced to disk and renamed. Until they are collected, the
servers' files may lie on other nodes than the files of worker 0.

While the job runs, the controller fetches one checkpoint at a time. An epoch may be shorter than
the transfer, so worker 0 holds one checkpoint: no node deletes this checkpoint until the controller
reports that all of its files have arrived. Then worker 0 holds the next complete checkpoint.
"""

import collections
import json
import os
import re
from typing import Any, Callable, Dict, List, Pattern, Tuple

from mxcluster.errors import DAMAGED, BadInput
from mxcluster.file_io import digest

# Folders in the job folder: saved checkpoints, and the checkpoint that the job resumes from.
FOLDER, RESUMED = "checkpoints", "resume"
# Files in the job folder that hold the name of a checkpoint: the one that worker 0 holds for the
# controller, and the one that the controller has fetched.
HELD, TAKEN = "held", "taken"
FILE = re.compile(
    r"(?P<name>(?P<network>[A-Za-z0-9][A-Za-z0-9._-]*)-(?P<epoch>[0-9]{4,9}))(\.server-[0-9]+)?\.(params|npz|json)"
)

# `name`: network and epoch, such as "mlp-0005"; `files`: all paths; `content`: of the manifest.
Checkpoint = collections.namedtuple("Checkpoint", "name epoch files content")


def name_of(network: str, epochs: int) -> str:
    """Return the name of a network's checkpoint after `epochs` epochs, such as "mlp-0005"."""
    return "%s-%04d" % (network, epochs)


def write(path: str, fill: Callable[[str], Any]) -> None:
    """Write the file `path` so that a crash leaves no partial file of this name.

    Args: `fill(name)` writes the content into the file `name` beside `path`. The function then
    forces that file to disk and renames it to `path`.
    """
    partial = path + ".partial"
    fill(partial)
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(partial, path)


def write_manifest(path: str, files: List[str], **content: Any) -> None:
    """Write the manifest `path` with the digests of `files` and the entries of `content`.

    All `files` lie in the folder of the manifest.
    """
    content["files"] = {os.path.basename(name): digest(name) for name in files}

    def fill(partial: str) -> None:
        with open(partial, "w", encoding="utf-8") as stream:
            json.dump(content, stream, indent=1, sort_keys=True)

    write(path, fill)


def forget(folder: str, network: str, epochs: int, spare: str = "") -> None:
    """Delete from `folder` the network's checkpoints of at most `epochs` epochs.

    The checkpoint named `spare` stays. The function deletes manifests first, so that no manifest
    names a deleted file.
    """
    found = [
        (match, name)
        for name in os.listdir(folder)
        for match in [_pattern(network).fullmatch(name)]
        if match
        and int(match.group(1)) <= epochs
        and name_of(network, int(match.group(1))) != spare
    ]
    for _, name in sorted(found, key=lambda pair: (not pair[1].endswith(".json"), pair[1])):
        try:
            os.remove(os.path.join(folder, name))
        except FileNotFoundError:  # Another server of this node deleted the file first.
            pass


def keep(folder: str, network: str, kept: int) -> None:
    """Delete the network's checkpoints in `folder` older than the last `kept` complete ones."""
    whole = [
        epoch for epoch in _epochs(folder, network) if is_there(folder, name_of(network, epoch))
    ]
    if len(whole) >= kept:
        forget(folder, network, whole[kept - 1] - 1)


def hold(job_dir: str, name: str) -> str:
    """Offer checkpoint `name`, unless the controller is still fetching an earlier one.

    Returns the name of the checkpoint that worker 0 holds. `name` must be complete.
    """
    held = told(job_dir, HELD)
    if held and held != told(job_dir, TAKEN):
        return held
    tell(job_dir, HELD, name)
    return name


def tell(folder: str, note: str, name: str) -> None:
    """Write the `name` of a checkpoint into the file `note` in `folder`, atomically."""
    partial = os.path.join(folder, "%s.%d" % (note, os.getpid()))
    with open(partial, "w", encoding="utf-8") as stream:
        stream.write(name)
    os.replace(partial, os.path.join(folder, note))


def told(folder: str, note: str) -> str:
    """Return the checkpoint's name in the file `note` in `folder`, "" without a valid name."""
    try:
        with open(os.path.join(folder, note), "rb") as stream:
            name = stream.read(300).decode("utf-8", "replace")
    except OSError:
        return ""
    return name if FILE.fullmatch(name + ".json") else ""


def is_there(folder: str, name: str) -> bool:
    """Return True if `folder` has all files of the checkpoint, with the sizes in its manifests."""
    try:
        return bool(read(folder, name, digests=False))
    except BadInput:
        return False


def last_complete(folder: str, network: str) -> Tuple[Any, List[str]]:
    """Return (Checkpoint, problems) of the network's last complete checkpoint in `folder`.

    The Checkpoint is None if no checkpoint is complete. The problems are one line for each later
    checkpoint that is incomplete or damaged.
    """
    problems: List[str] = []
    for epoch in _epochs(folder, network):
        try:
            return read(folder, name_of(network, epoch)), problems
        except BadInput as refusal:
            problems.append(str(refusal))
    return None, problems


def read(folder: str, name: str, digests: bool = True) -> Checkpoint:
    """Return the Checkpoint `name` in `folder` after a check of each file against its manifest.

    Without `digests`, the function checks only the sizes of the files. Raises BadInput with the
    name of the first file that is missing or damaged.
    """
    whole = os.path.join(folder, name + ".json")
    content = _checked(whole, digests)
    files = [whole] + [os.path.join(folder, file) for file in sorted(content["files"])]
    try:
        for rank in range(int(content["servers"])):
            part = os.path.join(folder, "%s.server-%d.json" % (name, rank))
            if _checked(part, digests)["id"] != content["id"]:
                raise BadInput(
                    "%s and %s belong to different saves of this epoch: use another checkpoint"
                    % (part, whole)
                )
            files += [part, part[: -len("json")] + "npz"]
        return Checkpoint(name, int(content["epoch"]), files, content)
    except DAMAGED as error:
        raise BadInput("%s is damaged: it is not the manifest of a checkpoint" % whole) from error


def _checked(path: str, digests: bool = True) -> Dict[str, Any]:
    """Return the content of the manifest `path` after a check of the files that it lists.

    Without `digests`, the function checks only the sizes of the files. Raises BadInput with the
    name of the faulty file.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            content: Dict[str, Any] = json.load(stream)
        for name, expected in content["files"].items():
            file = os.path.join(os.path.dirname(path), os.path.basename(name))
            if not (
                digest(file) == expected if digests else os.path.getsize(file) == expected["bytes"]
            ):
                raise BadInput(
                    "%s differs from its digest or size in %s: use another checkpoint"
                    % (os.path.join(os.path.dirname(path), name), path)
                )
        return content
    except OSError as error:
        raise BadInput("%s cannot be read (%s)" % (error.filename, error.strerror)) from error
    except DAMAGED as error:
        raise BadInput("%s is damaged: it is not the manifest of a checkpoint" % path) from error


def _epochs(folder: str, network: str) -> List[int]:
    """Return the epochs of the network's checkpoint files in `folder`, the last epoch first.

    Incomplete checkpoints count, too.
    """
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(
        {int(match.group(1)) for match in map(_pattern(network).fullmatch, names) if match},
        reverse=True,
    )


def _pattern(network: str) -> Pattern[str]:
    return re.compile(re.escape(network) + r"-([0-9]{4,})(\.server-[0-9]+)?\.(params|npz|json)")
