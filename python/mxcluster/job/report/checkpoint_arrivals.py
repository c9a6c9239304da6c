"""Fetch checkpoints to the controller during the job, and check the digests of the files.

The controller fetches one checkpoint at a time, the held checkpoint. Worker 0 marks a checkpoint as
held, and the nodes keep this checkpoint during the transfer (see `mxcluster.checkpoints`).

The controller has an Ansible process for each node. These processes share the name of the held
checkpoint through a file. Incomplete files lie in the folder FOLDER. Complete files move to the
parent folder, the manifest last.

This module does not call fsync, which could outlast the lease. `resume` skips files that are torn
after a crash of the controller.
"""

import contextlib
import json
import os
import shutil
import time
from typing import Callable, Dict, Mapping, Match, Optional, cast

from mxcluster import checkpoints
from mxcluster.errors import DAMAGED
from mxcluster.job.report import files as run_files
from mxcluster.model.checkpoint import FILE, FileDigest, Manifest, Offer

FOLDER = ".arriving"
LEAST, MOST = 1 << 20, 16 << 20  # bytes of a piece
QUICK = 1.0  # seconds for a piece; after a slower piece, the next piece is smaller

Fetch = Callable[[str, int, int], Optional[bytes]]


class Arrivals:
    """The transfer of checkpoint files from one node to a folder on the controller.

    Args:
        folder: the folder of the run's checkpoints.
        host: the node.
        kept: the number of complete checkpoints that stay in `folder`.
        fetch: a function (file, offset, most) that returns at most `most` bytes of a file of the
            node, b"" after the end of the file, and None if the node does not reply.
        plan: the job's plan as JSON, which `resume` needs. `bring` first writes it beside `folder`.
        keeps_best: True if the checkpoint with the highest accuracy stays, too.
    """

    def __init__(
        self,
        folder: str,
        host: str,
        kept: int,
        fetch: Fetch,
        plan: object,
        keeps_best: bool = False,
    ) -> None:
        self.folder, self.host, self.kept, self.fetch, self.plan = folder, host, kept, fetch, plan
        self.keeps_best = keeps_best
        self.transit = os.path.join(folder, FOLDER)
        self.most = LEAST
        self._reuses = True  # until a file differs from its digest

    def taken(self) -> str:
        """Return the name of the held checkpoint if `folder` has all its files, else ""."""
        held = checkpoints.read_note(self.transit, checkpoints.HELD)
        return held if held and checkpoints.is_there(self.folder, held) else ""

    def bring(self, offered: Offer, seconds: float) -> None:
        """Fetch the node's files of the held checkpoint, for about `seconds` seconds.

        The next call continues an incomplete file at the point where this call stopped.
        """
        until = time.monotonic() + seconds
        own = os.path.join(self.transit, self.host)
        for manifest, text in self._missing(offered).items():
            files = files_of(manifest, text)
            if files is None:
                continue
            os.makedirs(own, exist_ok=True)
            self._keep_plan(own)
            if not all(self._file(name, files[name], until) for name in files):
                return
            with open(os.path.join(own, manifest), "w", encoding="utf-8") as stream:
                stream.write(text)
            for name in list(files) + [manifest]:
                target = os.path.join(self.folder, name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.replace(os.path.join(own, name), target)
            # `_missing` returns names that FILE matches.
            match = cast(Match[str], FILE.fullmatch(manifest))
            checkpoints.keep(self.folder, match.group("network"), self.kept, self.keeps_best)

    def _keep_plan(self, own: str) -> None:
        path = os.path.join(os.path.dirname(os.path.abspath(self.folder)), "plan.json")
        if not os.path.exists(path):
            draft = os.path.join(own, "plan.json")
            run_files.write_json(draft, self.plan)
            os.replace(draft, path)

    def _missing(self, offered: Offer) -> Dict[str, str]:
        """Return {name: text} of the held checkpoint's manifests that `folder` lacks."""
        held = checkpoints.read_note(self.transit, checkpoints.HELD)
        new, old = (FILE.fullmatch(name + ".json") for name in (offered.held, held))
        # Workers of a script may save on several nodes. The first one makes the checkpoints.
        is_same = new and (old is None or old.group("network") == new.group("network"))
        if is_same and offered.held != held:
            held = offered.held
            os.makedirs(self.transit, exist_ok=True)
            checkpoints.write_note(self.transit, checkpoints.HELD, held)
        found = [(name, FILE.fullmatch(name)) for name in sorted(offered.parts)]
        return {
            name: offered.parts[name]
            for name, match in found
            if match
            and match.group("name") == held
            and name.endswith(".json")
            and not os.path.exists(os.path.join(self.folder, name))
        }

    def _file(self, name: str, expected: FileDigest, until: float) -> bool:
        """Fetch the rest of the file `name`, and return True if the file matches its digest.

        The method deletes a complete file with a wrong digest.

        Args: `expected` the file's digest in the manifest; `until` the value of
        time.monotonic() at which the method stops.
        """
        path = os.path.join(self.transit, self.host, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._reuse(path, expected)
        with open(path, "ab") as stream:
            while stream.tell() < expected.bytes:
                began = time.monotonic()
                if began >= until:
                    return False
                most = min(self.most, expected.bytes - stream.tell())
                data = self.fetch(name, stream.tell(), most)
                if not data or len(data) > most:
                    return False
                stream.write(data)
                self.most = (
                    min(MOST, 2 * self.most)
                    if time.monotonic() - began < QUICK
                    else max(LEAST, self.most // 2)
                )
        if checkpoints.digest(path) == expected:
            return True
        # The pieces belong to two attempts, or the file on the node has changed.
        os.remove(path)
        self._reuses = False
        return False

    def _reuse(self, path: str, expected: FileDigest) -> None:
        """Make the file `path` a link to an equal file of an earlier checkpoint, if there is one.

        A script may keep the files of many epochs in its checkpoint.
        """
        if os.path.exists(path) or not self._reuses:
            return
        for worker in checkpoints.workers(self.folder):
            earlier = checkpoints.last_complete(self.folder, worker, digests=False)[0]
            for name, known in earlier.manifest.files.items() if earlier else ():
                if known == expected:
                    with contextlib.suppress(OSError):  # a file system without hard links
                        os.link(os.path.join(self.folder, name), path)
                    return


def files_of(manifest: str, text: str) -> Optional[Mapping[str, FileDigest]]:
    """Return {file: digest} from the `text` of the manifest named `manifest`.

    The result is None if the manifest is invalid or names files of another checkpoint.
    """
    stem = manifest[: -len(".json")]
    try:
        files = Manifest.decode(json.loads(text)).files
    except DAMAGED:
        return None
    own = {stem + ".params", stem + ".npz"}
    return files if all(name in own or name.startswith(stem + "/") for name in files) else None


def settle(folder: str, kept: int, keeps_best: bool = False) -> None:
    """Delete incomplete files and old checkpoints from `folder` after the end of the job.

    Args: `kept` the number of complete checkpoints of each network that stay; `keeps_best` as for
    Arrivals.
    """
    shutil.rmtree(os.path.join(folder, FOLDER), ignore_errors=True)
    for network in checkpoints.networks(folder):
        checkpoints.keep(folder, network, kept, keeps_best)
