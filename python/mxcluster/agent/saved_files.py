"""Make checkpoints of the files that a script saves: in a process of its own beside the agent.

    python -m mxcluster.agent.saved_files

A worker that runs a script has the folder SAVED/<worker> of the job folder, and finds its path in
the variable MXCLUSTER_CHECKPOINTS. The script writes there whatever it needs to go on later. The
keeper copies the files once the folder has not changed for QUIET seconds, and writes a manifest
(see `mxcluster.checkpoints`). The controller then fetches this checkpoint as any other. The keeper
copies, because a script may write a file anew in place while the controller still fetches it.

One worker of a node makes checkpoints: the first one that changes the files in its folder. Hidden
files and links are no part of a checkpoint.

The agent tells the keeper by a last line on stdin why the workers have ended. If they are done,
their last files become a checkpoint at once. After another end they do not, because a process that
was killed may have left half a file. QUIET is longer than the end of all processes takes.
"""

import contextlib
import hashlib
import json
import os
import select
import shutil
import sys
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set

from mxcluster import checkpoints, events
from mxcluster.agent.kept_files import Mark, mark
from mxcluster.agent.log_files import open_regular
from mxcluster.errors import BadInput
from mxcluster.model.checkpoint import (
    FILE,
    LARGEST_MANIFEST,
    LONGEST,
    CheckpointManifest,
    FileDigest,
)
from mxcluster.model.events import Note
from mxcluster.model.saved_request import SavedRequest
from mxcluster.node import json_cli

PERIOD = 0.5  # seconds between two looks at the folders
QUIET = 4.0  # seconds without a change, after which the folder is a checkpoint
DONE = "done"  # the reason of the end of workers that have done their work
PIECE = 1 << 20  # bytes
ENTRY = 200  # bytes of a file in a manifest, without its path
MOST_NOTES = 5  # of a node
NAMED = 5  # most files of a worker that a message names

Marks = Dict[str, Mark]  # {path in the folder of a worker: mark of the file}


class Copy(NamedTuple):
    """A file of the last checkpoint: the mark of the worker's file, the copy, and its digest."""

    mark: Mark
    path: str
    digest: FileDigest


class TooMuch(Exception):
    """Error for saved files that are no checkpoint, with the reason."""


class Saved:
    """The files that one worker saves. The paths are relative to the job folder.

    Args: `worker` its name; `most` bytes of a checkpoint.
    """

    def __init__(self, worker: str, most: int) -> None:
        self.worker, self.most = worker, most
        self.top = os.path.join(checkpoints.SAVED, worker)
        self.number = 0  # of the last checkpoint
        self._seen: Marks = {}
        self._since = 0.0  # monotonic time of the last change
        self._tried: Marks = {}  # the files at the last call of `save`
        self._copies: Dict[str, Copy] = {}  # of the last checkpoint
        self._digests = restored()
        self._held = ""  # the name of the checkpoint that the controller fetches

    def is_ready(self, now: float, is_done: bool = False) -> bool:
        """Return True if the folder has changed since the last call of `save`, and is quiet now.

        Args: `now` the monotonic time; `is_done` True after the end of a worker that is done.
        """
        found = marks(self.top)
        if found != self._seen:
            self._seen, self._since = found, now
        is_quiet = is_done or now - self._since >= QUIET
        return bool(found) and found != self._tried and is_quiet

    def save(self) -> bool:
        """Make a checkpoint of the files in the folder. Return True if there is a new one.

        The result is False if the files have the content of the last checkpoint, or if the script
        has changed them meanwhile. Raises OSError, and TooMuch if the files are no checkpoint.
        """
        self._tried = self._seen
        name = checkpoints.name_of(self.worker, self.number + 1)
        self._refuse(name)
        draft = os.path.join(checkpoints.SAVED, "." + name)
        try:
            copies = {path: self._copied(path, draft) for path in sorted(self._seen)}
            if marks(self.top) != self._seen:
                return False
            digests = {path: copy.digest for path, copy in copies.items()}
            if digests == self._digests:
                return False
            folder = os.path.join(checkpoints.FOLDER, name)
            os.rename(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self.number, self._digests = self.number + 1, digests
        self._copies = {
            path: copy._replace(path=os.path.join(folder, path)) for path, copy in copies.items()
        }
        manifest = CheckpointManifest(
            id=os.urandom(16).hex(),
            network=self.worker,
            epoch=self.number,
            servers=0,
            files={name + "/" + path: one for path, one in digests.items()},
        )
        checkpoints.write_digests(folder + ".json", manifest)
        self.offer()
        return True

    def offer(self) -> None:
        """Hold the last checkpoint, once the controller has fetched the held one. Delete others."""
        name = checkpoints.name_of(self.worker, self.number)
        if self.number and self._held != name:
            self._held = checkpoints.hold(".", name)
            checkpoints.forget(checkpoints.FOLDER, self.worker, self.number - 1, [self._held])

    def _refuse(self, name: str) -> None:
        """Raise TooMuch if the files are too many, too large, or have a name that cannot travel."""
        size = sum(found[1] for found in self._seen.values() if found)
        for path in sorted(self._seen):
            whole = name + "/" + path
            if len(whole) > LONGEST or not FILE.fullmatch(whole):
                raise TooMuch(
                    "the name %r has other characters than letters, digits, blanks and ._+=@,-, or "
                    "is too long or too deep: rename this file" % path[:200]
                )
        if sum(len(name) + len(path) + ENTRY for path in self._seen) > LARGEST_MANIFEST:
            raise TooMuch(
                "its %d files are too many for a manifest of %d KiB: let the script delete old "
                "files" % (len(self._seen), LARGEST_MANIFEST >> 10)
            )
        if size > self.most:
            raise TooMuch(
                "the files have %d MB, above the limit collect_mb=%d: raise collect_mb, or let the "
                "script delete old files" % (size >> 20, self.most >> 20)
            )

    def _copied(self, path: str, draft: str) -> Copy:
        """Copy the file `path` of the folder into the folder `draft`.

        A file that has not changed since the last checkpoint gets a link to its copy there.
        """
        target, known = os.path.join(draft, path), self._copies.get(path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if known and known.mark == self._seen[path]:
            os.link(known.path, target)
            return known
        digest, size = hashlib.sha256(), 0
        descriptor = open_regular(os.path.join(self.top, path))
        with open(descriptor, "rb") as source, open(target, "wb") as stream:
            for piece in iter(lambda: source.read(PIECE), b""):
                size += len(piece)
                if size > self.most:
                    raise TooMuch("%s grows beyond the limit collect_mb" % path)
                digest.update(piece)
                stream.write(piece)
        return Copy(self._seen[path], target, FileDigest(sha256=digest.hexdigest(), bytes=size))


def marks(top: str) -> Marks:
    """Return the marks of the regular files below the folder `top`, without hidden ones."""
    found: Marks = {}
    for parent, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = os.path.join(parent, name)
            seen = None if name.startswith(".") else mark(path)
            if seen:
                found[os.path.relpath(path, top)] = seen
    return found


def prepare(job_dir: str, workers: Sequence[str]) -> None:
    """Make the folder of each worker of a script, with the files of the checkpoint to resume from.

    Each worker gets all files, since a script reads its checkpoint in every worker. Raises BadInput
    if a file differs from its digest.
    """
    resumed = os.path.join(job_dir, checkpoints.RESUMED)
    files = _files_in(resumed, digests=True)
    for worker in workers:
        top = os.path.join(job_dir, checkpoints.SAVED, worker)
        os.makedirs(top, exist_ok=True)
        for path in files:
            target = os.path.join(top, _inner(path))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(os.path.join(resumed, path), target)


def restored() -> Dict[str, FileDigest]:
    """Return {path: digest} of the files from which the job in this folder resumes, else {}."""
    found = _files_in(checkpoints.RESUMED, digests=False)
    return {_inner(path): digest for path, digest in found.items()}


def _files_in(folder: str, digests: bool) -> Dict[str, FileDigest]:
    """Return {path: digest} of the only checkpoint in `folder`, {} without one.

    Raises BadInput if a file has another size than in the manifest, or another digest, with
    `digests`.
    """
    found: Dict[str, FileDigest] = {}
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(".json") and FILE.fullmatch(name):
            found.update(checkpoints.read(folder, name[: -len(".json")], digests).manifest.files)
    return found


def unkept(job_dir: str, most: int) -> List[str]:
    """Return a line for each worker with saved files that no checkpoint of the job has.

    The node has the only copy of these files, such as after a failure of the job.

    Args: `job_dir` the job folder; `most` bytes of a checkpoint.
    """
    lines: List[str] = []
    top = os.path.join(job_dir, checkpoints.SAVED)
    if os.path.islink(top) or not os.path.isdir(top):
        return lines
    known = _digests_in(job_dir)
    for worker in sorted(os.listdir(top)):
        own = os.path.join(top, worker)
        if worker.startswith(".") or os.path.islink(own):
            continue
        alone = [
            path
            for path, seen in sorted(marks(own).items())
            if not seen or not _is_known(os.path.join(own, path), seen[1], known.get(path), most)
        ]
        if alone:
            lines.append(
                "%s: %d saved file%s stay%s in %s, because no checkpoint has the content: copy by "
                "hand what you need: %s%s"
                % (
                    worker,
                    len(alone),
                    "s" * (len(alone) > 1),
                    "s" * (len(alone) == 1),
                    own,
                    ", ".join(alone[:NAMED]),
                    ", ..." if len(alone) > NAMED else "",
                )
            )
    return lines


def _digests_in(job_dir: str) -> Dict[str, List[FileDigest]]:
    """Return {path in the folder of a worker: digests in the job's checkpoints}.

    The checkpoint from which the job resumes counts, too.
    """
    found: Dict[str, List[FileDigest]] = {}
    for folder in (checkpoints.FOLDER, checkpoints.RESUMED):
        parent = os.path.join(job_dir, folder)
        for name in sorted(os.listdir(parent)) if os.path.isdir(parent) else ():
            with contextlib.suppress(BadInput, OSError):  # an incomplete checkpoint keeps nothing
                if name.endswith(".json") and FILE.fullmatch(name):
                    files = checkpoints.read(parent, name[: -len(".json")], False).manifest.files
                    for path, digest in files.items():
                        found.setdefault(_inner(path), []).append(digest)
    return found


def _is_known(path: str, size: int, digests: Optional[Sequence[FileDigest]], most: int) -> bool:
    """Return True if one of the `digests` is that of the file `path` with `size` bytes."""
    same = [one for one in digests or () if one.bytes == size <= most]
    if not same:
        return False
    found = hashlib.sha256()
    try:
        with open(open_regular(path), "rb") as source:
            for piece in iter(lambda: source.read(PIECE), b""):
                found.update(piece)
    except (BadInput, OSError):
        return False
    return any(one.sha256 == found.hexdigest() for one in same)


def _inner(path: str) -> str:
    """Return the path of a checkpoint's file in the folder of the worker."""
    return path.partition("/")[2]


def _ends(patience: float) -> Iterator[Optional[str]]:
    """Yield None every `patience` seconds, and at last the reason of the end of the workers."""
    while not select.select([sys.stdin], [], [], patience)[0]:
        yield None
    yield sys.stdin.buffer.readline().decode("ascii", "replace").strip()


def keep(request: SavedRequest) -> None:
    """Make checkpoints until the workers have ended, and then of their last files."""
    log = events.EventLog(events.FILE, host=request.host)
    all_saved = [Saved(worker, request.most_mb << 20) for worker in request.workers]
    noted: Set[str] = set()
    os.makedirs(checkpoints.FOLDER, exist_ok=True)
    for reason in _ends(PERIOD):
        if reason not in (None, DONE):
            return
        for saved in all_saved:
            try:
                saved.offer()
                if saved.is_ready(time.monotonic(), reason == DONE) and saved.save():
                    all_saved = [saved]
                    break
            except (BadInput, OSError, TooMuch) as error:
                text = "%s: no new checkpoint of %s: %s" % (request.host, saved.worker, error)
                if text not in noted and len(noted) < MOST_NOTES:
                    noted.add(text)
                    log.write(Note(text=text))


if __name__ == "__main__":
    keep(SavedRequest.decode(json.loads(sys.stdin.buffer.readline().decode("ascii"))))
    json_cli.leave(0)  # the agent waits
