"""Find the files that scripts wrote on this node, in each worker's copy of the script's folder."""

import os
import stat
import zlib
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

from mxcluster.agent.folder import JobFolder
from mxcluster.model.job_knobs import MpiOptions
from mxcluster.package import OWN_FOLDERS, SCRIPT_ZIP, is_compiled

MEGABYTE = 1 << 20
DEFAULT_MB = 1024
SPARE = 64 * MEGABYTE  # bytes that stay free for logs on the disk of the tar file
NAMED = 5  # most files of a worker that a message names

Found = NamedTuple("Found", [("names", List[str]), ("behind", List[str])])
Written = NamedTuple("Written", [("size", int), ("age", float), ("name", str)])


def find(folder: JobFolder, output: Union[str, int]) -> Found:
    """Return the names of the files to collect, and lines about files that stay on the node.

    Names are relative to the job folder. The function selects files that are new or differ from the
    files that the controller sent. Small files come first. Of files of equal size, the newest come
    first. The total size is at most the job's knob collect_mb. At least SPARE bytes stay free on
    the disk of `output`, the tar file's path or descriptor. Links, sockets, FIFOs and devices stay
    on the node.
    """
    top = folder.file(OWN_FOLDERS)
    unwanted = _unwanted(folder)
    if os.path.islink(top) or not os.path.isdir(top):
        return Found([], [])
    sent = _sent(folder)
    files, special = [], []  # type: Tuple[List[Written], List[str]]
    for parent, folders, others in os.walk(top):
        folders[:] = [name for name in folders if not is_compiled(name)]
        for name in others + folders:
            path = os.path.join(parent, name)
            try:
                seen = os.lstat(path)
            except OSError:
                continue  # removed meanwhile
            relative = os.path.relpath(path, folder.path)
            if stat.S_ISDIR(seen.st_mode):
                continue
            if not stat.S_ISREG(seen.st_mode):
                special.append(relative)
            elif not is_compiled(name) and not _is_as_sent(
                path, seen.st_size, sent.get(_inner(relative))
            ):
                files.append(Written(seen.st_size, -seen.st_mtime, relative))
    sizes = {file.name: file.size for file in files}
    if unwanted:
        return Found([], _about(folder, sorted(sizes), sizes, unwanted))
    plan = folder.known_plan()
    most = plan.options.collect_mb if plan else DEFAULT_MB
    left = min(most * MEGABYTE, max(0, room(output) - SPARE))
    names, over = [], []  # type: Tuple[List[str], List[str]]
    for file in sorted(files):
        left -= file.size
        (names if left >= 0 else over).append(file.name)
    return Found(
        names,
        _about(
            folder,
            over,
            sizes,
            "above the limit collect_mb=%d or the free disk space, so copy these files by hand"
            % most,
        )
        + _about(folder, special, {}, "not regular files"),
    )


def _sent(folder: JobFolder) -> Dict[str, Tuple[int, int]]:
    """Return {name: (size in bytes, CRC)} of the files in the script's zip file.

    Returns {} without the zip file.
    """
    import zipfile  # not at the top: each poll would import it, for 3 ms

    try:
        with zipfile.ZipFile(folder.file(SCRIPT_ZIP)) as packed:
            return {member.filename: (member.file_size, member.CRC) for member in packed.infolist()}
    except (OSError, zipfile.BadZipFile):
        return {}


def _is_as_sent(path: str, size: int, sent: Optional[Tuple[int, int]]) -> bool:
    if not sent or sent[0] != size:
        return False
    crc = 0
    try:
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(MEGABYTE), b""):
                crc = zlib.crc32(block, crc)
    except OSError:
        return False
    return crc == sent[1]


def _inner(relative: str) -> str:
    """Return NAME for `relative`, a path of the form files/worker-0/NAME in the job folder."""
    return "/".join(relative.split(os.sep)[2:])


def _unwanted(folder: JobFolder) -> str:
    """Return the reason why the knob mpi_output excludes all files of this job, else ""."""
    plan, known = folder.known_plan(), folder.status()
    options = plan and plan.options
    wanted = options.mpi_output if isinstance(options, MpiOptions) else "always"
    done = known is not None and known.reason == "done"
    if wanted == "always" or wanted == ("success" if done else "failure"):
        return ""
    return "mpi_output=%s, and the job on this node %s" % (wanted, "is done" if done else "failed")


def room(output: Union[str, int]) -> int:
    """Return the free bytes on the file system of `output` (a path or descriptor)."""
    found = os.statvfs(
        output if isinstance(output, int) else os.path.dirname(os.path.abspath(output))
    )
    return found.f_bavail * found.f_frsize


def _about(folder: JobFolder, names: List[str], sizes: Dict[str, int], why: str) -> List[str]:
    """Return a line for each worker that has some of the files `names`, which stay on the node.

    `sizes`: {file name: bytes}. `why`: the reason why the files stay on the node.
    """
    lines = []
    for worker in sorted({name.split(os.sep)[1] for name in names}):
        own = [name for name in names if name.split(os.sep)[1] == worker]
        size = sum(sizes.get(name, 0) for name in own)
        lines.append(
            "%s: %d file%s%s stay%s in %s (%s): %s%s"
            % (
                worker,
                len(own),
                "s" * (len(own) > 1),
                " of %d MB" % (size >> 20) if size else "",
                "s" * (len(own) == 1),
                folder.file(os.path.join(OWN_FOLDERS, worker)),
                why,
                ", ".join(_inner(name) or name for name in own[:NAMED]),
                ", ..." if len(own) > NAMED else "",
            )
        )
    return lines
