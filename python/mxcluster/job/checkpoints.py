"""Checkpoints on disk: which files one has, and whether it is whole.  Only the standard library.

After epoch 5 of mlp there are::

    mlp-0005.params           the weights, by worker 0
    mlp-0005.server-0.npz     the optimizer's states of one server: momentum and the like (kvstore.states)
    mlp-0005.server-0.json    its manifest: SHA-256 and size of the file, and the number that all of this checkpoint have
    mlp-0005.json             the manifest of the whole, written last, when all the others are there

Every file is written under another name, forced to disk and renamed.  The files of the servers may lie on other nodes than
worker 0's until they are collected.

While the job runs they are brought to the controller, one checkpoint at a time.  Epochs may be shorter than that takes, so worker
0 holds one: it is not forgotten, on no node, until the controller has all of it and says so.  Then the next whole one is held.
"""
import collections
import hashlib
import json
import os
import re
from typing import Any, Callable, Dict, List, Tuple

from mxcluster.errors import BadInput

FOLDER, RESUMED = "checkpoints", "resume"  # in the job's folder: what it saves, and what it goes on from
HELD, TAKEN = "held", "taken"  # in the job's folder, names: what is kept for the controller, and what it has got
FILE = re.compile(r"(?P<name>(?P<network>[A-Za-z0-9][A-Za-z0-9._-]*)-(?P<epoch>[0-9]{4,9}))(\.server-[0-9]+)?\.(params|npz|json)")

# `name`: network and epoch, as "mlp-0005"; `files`: all of its paths; `content` of its manifest.
Checkpoint = collections.namedtuple("Checkpoint", "name epoch files content")


def name_of(network: str, epochs: int) -> str:
    """The name of the checkpoint of a network after so many epochs."""
    return "%s-%04d" % (network, epochs)


def write(path: str, fill: Callable[[str], Any]) -> None:
    """Have `fill(other path)` write a file, and put it in place of `path` once it is on the disk."""
    partial = path + ".partial"
    fill(partial)
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(partial, path)


def write_manifest(path: str, files: List[str], **content: Any) -> None:
    """A manifest with the digests of `files`, which lie in the same folder, and what else it shall say."""
    content["files"] = {os.path.basename(name): digest(name) for name in files}

    def fill(partial):
        with open(partial, "w", encoding="utf-8") as stream:
            json.dump(content, stream, indent=1, sort_keys=True)
    write(path, fill)


def forget(folder: str, network: str, epochs: int, spare: str = "") -> None:
    """Remove the checkpoints of the network up to that after so many epochs, but not the one named `spare`; manifests first."""
    found = [(match, name) for name in os.listdir(folder) for match in [_pattern(network).fullmatch(name)]
             if match and int(match.group(1)) <= epochs and name_of(network, int(match.group(1))) != spare]
    for _, name in sorted(found, key=lambda pair: (not pair[1].endswith(".json"), pair[1])):
        try:
            os.remove(os.path.join(folder, name))
        except FileNotFoundError:  # another server of this node was faster
            pass


def keep(folder: str, network: str, kept: int) -> None:
    """Forget what is older than the last `kept` whole ones."""
    whole = [epoch for epoch in _epochs(folder, network) if is_there(folder, name_of(network, epoch))]
    if len(whole) >= kept:
        forget(folder, network, whole[kept - 1] - 1)


def hold(job_dir: str, name: str) -> str:
    """The name of the checkpoint that is held for the controller: `name`, which is whole now, if it has got the one before."""
    held = told(job_dir, HELD)
    if held and held != told(job_dir, TAKEN):
        return held
    tell(job_dir, HELD, name)
    return name


def tell(folder: str, note: str, name: str) -> None:
    """Write the name of a checkpoint into the file `note`, in one step."""
    partial = os.path.join(folder, "%s.%d" % (note, os.getpid()))
    with open(partial, "w", encoding="utf-8") as stream:
        stream.write(name)
    os.replace(partial, os.path.join(folder, note))


def told(folder: str, note: str) -> str:
    """The name in such a file; "" if there is none that could be one."""
    try:
        with open(os.path.join(folder, note), "rb") as stream:
            name = stream.read(300).decode("utf-8", "replace")
    except OSError:
        return ""
    return name if FILE.fullmatch(name + ".json") else ""


def is_there(folder: str, name: str) -> bool:
    """Whether all files of the checkpoint are there, as large as they should be."""
    try:
        return bool(read(folder, name, digests=False))
    except BadInput:
        return False


def last_complete(folder: str, network: str) -> Tuple[Any, List[str]]:
    """(the last whole Checkpoint of the network in the folder or None, what is wrong with those after it, a line each)."""
    problems = []
    for epoch in _epochs(folder, network):
        try:
            return read(folder, name_of(network, epoch)), problems
        except BadInput as refusal:
            problems.append(str(refusal))
    return None, problems


def read(folder: str, name: str, digests: bool = True) -> Checkpoint:
    """The Checkpoint of this name, every file of which is as it was written. BadInput says what is not.

    Without `digests`, only the sizes of the files are looked at.
    """
    whole = os.path.join(folder, name + ".json")
    content = _checked(whole, digests)
    files = [whole] + [os.path.join(folder, file) for file in sorted(content["files"])]
    try:
        for rank in range(int(content["servers"])):
            part = os.path.join(folder, "%s.server-%d.json" % (name, rank))
            if _checked(part, digests)["id"] != content["id"]:
                raise BadInput("%s is of another attempt to save it" % part)
            files += [part, part[:-len("json")] + "npz"]
        return Checkpoint(name, int(content["epoch"]), files, content)
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput("%s is not a manifest (%s)" % (whole, error)) from error


def _checked(path: str, digests: bool = True) -> Dict[str, Any]:
    """The content of a manifest, whose files are as it says."""
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
        for name, expected in content["files"].items():
            file = os.path.join(os.path.dirname(path), os.path.basename(name))
            if not (digest(file) == expected if digests else os.path.getsize(file) == expected["bytes"]):
                raise BadInput("%s is not as it was written, by %s" % (os.path.join(os.path.dirname(path), name), path))
        return content
    except OSError as error:
        raise BadInput("%s cannot be read (%s)" % (error.filename, error.strerror)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput("%s is not a manifest (%s)" % (path, error)) from error


def digest(path: str) -> Dict[str, Any]:
    """What a manifest says of a file."""
    sha256, size = hashlib.sha256(), 0
    with open(path, "rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            sha256.update(piece)
            size += len(piece)
    return {"sha256": sha256.hexdigest(), "bytes": size}


def _epochs(folder: str, network: str) -> List[int]:
    """The epochs of which there is anything, the last first."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted({int(match.group(1)) for match in map(_pattern(network).fullmatch, names) if match}, reverse=True)


def _pattern(network: str):
    return re.compile(re.escape(network) + r"-(\d{4,})(\.server-\d+)?\.(params|npz|json)")
