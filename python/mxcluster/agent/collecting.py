"""Pack the files of a job on a node into a tar file."""

import errno
import os
import tarfile
from typing import IO, BinaryIO, Dict, List, Optional, Set, Union, cast

from mxcluster import checkpoints
from mxcluster.agent import batch_job, script_files
from mxcluster.agent.commands import left
from mxcluster.agent.folder import JobFolder, private, remove
from mxcluster.agent.log_files import open_regular
from mxcluster.errors import MxclusterError
from mxcluster.model import protocol
from mxcluster.model.answers import Collected
from mxcluster.model.run_record import MACHINE

# A log may have any size, also without a byte on the disk. The archive gets the end of a long log.
LOG_MOST = 64 << 20  # most bytes of a log, of the events or of another small file
LOGS_MOST = 1 << 30  # most bytes of all these files together
UNSAVED_MOST = 64 << 10  # most bytes of the lines about saved files
PACKED = (
    "plan.json",
    "status.json",
    "events.jsonl",
    "rendezvous.json",
    MACHINE,
    batch_job.PARTS,
    batch_job.PLANNED,
)


def collect(request: protocol.Collect, target: Optional[int] = None) -> Collected:
    """Pack the files of a job on this node into a tar file.

    `target`: the open descriptor of the tar file, which keeps its owner. Without `target`, the
    function writes to the path of the request. A new file there gets mode 0600.

    The tar file has plan.json, status.json, events.jsonl, rendezvous.json, machine.json, *.env,
    *.log, checkpoints/ and the files that scripts wrote. Names are relative to the folder and in
    alphabetical order.
    """
    folder = JobFolder(request.job_dir)
    output: Union[str, int] = request.output if target is None else target
    names, scripts, behind = [], set(), []  # type: List[str], Set[str], List[str]
    for part in [folder] + folder.parts():
        found = script_files.find(part, output)
        inside = [part.file(name) for name in found.names]
        scripts.update(os.path.relpath(path, folder.path) for path in inside)
        behind += found.behind + _unsaved(part)
        names += [os.path.relpath(part.file(name), folder.path) for name in _to_pack(part)]
    names = sorted([*names, *scripts])
    there, packed, problem = left(folder), 0, None
    try:
        if isinstance(output, int):
            packed = _write(folder, names, output, scripts, behind)
        else:
            draft = "%s.%d.part" % (output, os.getpid())  # two controllers can collect at once
            try:
                packed = _write(folder, names, private(draft), scripts, behind)
                os.replace(draft, output)
            finally:
                remove(draft)
    except OSError as error:
        problem = (
            "cannot pack the job's files in %s (%s): free disk space or correct the rights of the "
            "files on this node, and fetch the files with train.yml -e attach=<job>"
            % (folder.path, error.strerror or error)
        )
    return Collected(
        files=0 if problem else len(names),
        bytes=packed,
        problem=problem,
        left=there,
        behind=behind,
    )


def _unsaved(folder: JobFolder) -> List[str]:
    """Return a line for each worker of a script whose saved files are no checkpoint."""
    try:
        descriptor = open_regular(folder.file(checkpoints.UNSAVED))
    except (MxclusterError, OSError):
        return []
    with open(descriptor, "rb") as stream:
        return stream.read(UNSAVED_MOST).decode("utf-8", "replace").splitlines()


def _to_pack(folder: JobFolder) -> List[str]:
    """Return the sorted names of the files to collect, except the files of scripts.

    The names are relative to the job folder.
    """
    names = [
        name
        for name in os.listdir(folder.path)
        if name in PACKED or name.endswith((".env", ".log"))
    ]
    # Those of a node of a batch job are a link to those of the job.
    top = folder.file("checkpoints")
    for root, folders, files in os.walk(top) if not os.path.islink(top) else ():
        linked = [
            name for name in folders if os.path.islink(os.path.join(root, name))
        ]  # os.walk lists a link to a folder as a folder, and does not follow the link
        names += [os.path.relpath(os.path.join(root, name), folder.path) for name in files + linked]
    return sorted(names)


def _write(
    folder: JobFolder, names: List[str], descriptor: int, scripts: Set[str], behind: List[str]
) -> int:
    """Write the files `names` of the job folder into a tar file. Return the size in bytes.

    The tar file goes to `descriptor`, which the function then closes. `scripts` has the names of
    the files of scripts. For each unreadable file of `scripts` the function adds a line to
    `behind`. Any other unreadable file raises OSError or MxclusterError. For each log that is cut,
    and for each hollow checkpoint, the function adds a line, too. Raises OSError before the first
    write if the disk of `descriptor` lacks space for the files.
    """
    found = {name: os.lstat(folder.file(name)) for name in names}
    hollow = [name for name in names if name not in scripts and _is_hollow(name, found[name])]
    for name in hollow:
        behind.append(
            "%s stays on the node (the file has %d bytes, most of them without content): copy the "
            "file by hand" % (name, found[name].st_size)
        )
    names = [name for name in names if name not in hollow]
    sizes = {name: found[name].st_size for name in names}
    allowed = _allowed([name for name in names if name not in scripts], sizes)
    for name in sorted(allowed):
        if sizes[name] > allowed[name]:
            behind.append(
                "the beginning of %s stays on the node (the file has %d bytes, and the last %d "
                "were collected): copy the file by hand" % (name, sizes[name], allowed[name])
            )
    with open(descriptor, "wb") as stream:
        if sum(min(sizes[name], allowed.get(name, sizes[name])) for name in names) > (
            script_files.room(descriptor)
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for name in names:
                try:
                    source = open_regular(folder.file(name))
                except (OSError, MxclusterError) as error:
                    if name not in scripts:
                        raise
                    behind.append(
                        "%s stays on the node, because mxcluster cannot read this file (%s): "
                        "copy the file as root" % (name, getattr(error, "strerror", None) or error)
                    )
                else:
                    _pack(archive, source, name, allowed.get(name))
        return stream.tell()


def _allowed(names: List[str], sizes: Dict[str, int]) -> Dict[str, int]:
    """Return {name: most bytes in the archive} of logs and small files.

    The limit is LOG_MOST for each file and LOGS_MOST for all. Logs come last, so that they leave
    space for the status and the events. Checkpoints have no limit. Args: `names` of the files
    except those of scripts; `sizes` in bytes.
    """
    allowed, room = {}, LOGS_MOST
    for name in sorted(names, key=lambda one: one.endswith(".log")):
        if not _is_checkpoint(name):
            allowed[name] = min(LOG_MOST, room)
            room -= min(sizes[name], allowed[name])
    return allowed


def _is_checkpoint(name: str) -> bool:
    return name.startswith("checkpoints" + os.sep)


def _is_hollow(name: str, found: os.stat_result) -> bool:
    """Return True for a large checkpoint with less than half of its size on the disk.

    Such a sparse file needs almost no space of the training user, but its whole size in the
    archive. Half, because a file system may compress a checkpoint.
    """
    size = found.st_size
    return _is_checkpoint(name) and size > LOG_MOST and 2 * 512 * found.st_blocks < size


def _pack(archive: tarfile.TarFile, source: int, name: str, most: Optional[int] = None) -> None:
    """Add the file of the descriptor `source` to `archive` as `name`, and close the descriptor.

    `most`: the number of bytes to pack, from the end of the file; None for the whole file.

    A log may still grow, so the function packs the file up to its size at the call. If the file
    shrinks meanwhile, zeros fill the rest of its size in the archive. The archive stores no owner
    and no special permissions such as setuid, which have no meaning on the controller. The archive
    stores a hard link as a whole file.
    """
    with open(source, "rb") as stream:
        found = os.fstat(source)
        info = tarfile.TarInfo(name)
        if most is not None and found.st_size > most:
            stream.seek(found.st_size - most)
        info.size, info.mtime, info.mode = (
            found.st_size - stream.tell(),
            int(found.st_mtime),
            0o644 if found.st_mode & 0o044 else 0o600,
        )
        archive.addfile(info, cast(IO[bytes], _Padded(stream)))


class _Padded:
    """A file to pack. `read` returns zeros after the end of the file.

    tarfile writes the size of a file before its content. Shorter content would break the archive.
    """

    def __init__(self, stream: BinaryIO):
        self._stream = stream

    def read(self, size: int) -> bytes:
        """Return `size` bytes."""
        return self._stream.read(size).ljust(size, b"\0")
