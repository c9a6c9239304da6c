"""Checkpoints that come to the controller while their job runs. A node is not believed further than a digest can tell.

One checkpoint at a time, the one that worker 0 holds (`mxcluster.checkpoints`): which one that is, those who wait for the nodes
tell each other by a file. What is on the way lies in a folder of its own; a part that is there is whole, with its manifest last.
Nothing waits for the disk, for the job's lease does not either: what a crash of this machine has torn, `resume` passes over.
"""
import json
import os
import shutil
import time
from typing import Any, Callable, Dict, Optional

from mxcluster import checkpoints
from mxcluster.report import files as run_files

FOLDER = ".arriving"
LEAST, MOST = 1 << 20, 16 << 20  # bytes of a piece
QUICK = 1.0  # seconds that a piece may take until the next ones are smaller

Json = Dict[str, Any]
Ask = Callable[[str, int, int], Optional[bytes]]


class Arrivals:
    """What comes of one node to `folder`, where the last `kept` whole checkpoints stay.

    `ask(file, offset, most)` is how the node is asked for a piece of a file: None if it gives none, b"" behind its end. The
    `plan` is written beside the folder before anything comes: without it, nobody could go on from a checkpoint.
    """

    def __init__(self, folder: str, host: str, kept: int, ask: Ask, plan: Json):
        self.folder, self.host, self.kept, self.ask, self.plan = folder, host, kept, ask, plan
        self.transit = os.path.join(folder, FOLDER)
        self.most = LEAST

    def taken(self) -> str:
        """The checkpoint that was wanted and is here now; "" if there is none."""
        wanted = checkpoints.told(self.transit, checkpoints.HELD)
        return wanted if wanted and checkpoints.is_there(self.folder, wanted) else ""

    def bring(self, offered: Json, seconds: float) -> None:
        """Bring what the node offers (`agent.parts.offered`) of the wanted checkpoint, for about so long.

        What is not here by then goes on where it was cut off.
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
                os.replace(os.path.join(own, name), os.path.join(self.folder, name))
            checkpoints.keep(self.folder, checkpoints.FILE.fullmatch(manifest).group("network"), self.kept)

    def _keep_plan(self, own: str) -> None:
        path = os.path.join(os.path.dirname(os.path.abspath(self.folder)), "plan.json")
        if not os.path.exists(path):
            draft = os.path.join(own, "plan.json")
            run_files.write_json(draft, self.plan)
            os.replace(draft, path)

    def _missing(self, offered: Json) -> Dict[str, str]:
        """The manifests of the wanted checkpoint that this node has and that are not here, with their texts."""
        held = str(offered.get("held") or "")
        if checkpoints.FILE.fullmatch(held + ".json") and held != checkpoints.told(self.transit, checkpoints.HELD):
            os.makedirs(self.transit, exist_ok=True)
            checkpoints.tell(self.transit, checkpoints.HELD, held)
        wanted = checkpoints.told(self.transit, checkpoints.HELD)
        found = [(name, checkpoints.FILE.fullmatch(str(name))) for name in sorted(offered.get("parts") or {})]
        return {name: str(offered["parts"][name]) for name, match in found if match and match.group("name") == wanted
                and name.endswith(".json") and not os.path.exists(os.path.join(self.folder, name))}

    def _file(self, name: str, expected: Json, until: float) -> bool:
        """Fetch a file, or go on with it; whether all of it has come, as it was written."""
        path = os.path.join(self.transit, self.host, name)
        with open(path, "ab") as stream:
            while stream.tell() < expected["bytes"]:
                began = time.monotonic()
                if began >= until:
                    return False
                most = min(self.most, expected["bytes"] - stream.tell())
                data = self.ask(name, stream.tell(), most)
                if not data or len(data) > most:
                    return False
                stream.write(data)
                self.most = min(MOST, 2 * self.most) if time.monotonic() - began < QUICK else max(LEAST, self.most // 2)
        if checkpoints.digest(path) == expected:
            return True
        os.remove(path)  # half of it was of another attempt, or what is on the node has changed
        return False


def files_of(manifest: str, text: str) -> Optional[Dict[str, Json]]:
    """{file: its digest and size} of a manifest; None if it makes no sense, or names files that are not its own (pure)."""
    stem = manifest[:-len(".json")]
    try:
        files = {file: {"sha256": str(said["sha256"]), "bytes": int(said["bytes"])}
                 for file, said in json.loads(text)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return files if set(files) <= {stem + ".params", stem + ".npz"} else None


def settle(folder: str, network: str, kept: int) -> None:
    """After the job: forget what was on the way, and what is older than the last `kept` whole checkpoints."""
    shutil.rmtree(os.path.join(folder, FOLDER), ignore_errors=True)
    if os.path.isdir(folder):
        checkpoints.keep(folder, network, kept)
