"""Whether a node is still as provision.yml has left it. On the controller.

Remembered is a digest of all that decides what goes on the node, and how the files looked that were put there. Where both are as
they were, and the node tells the same of itself as in its record, there is nothing to do.
"""
import hashlib
import json
import os
from typing import Any, Dict, Optional, Sequence

Json = Dict[str, Any]

SOURCES = ("roles", "plugins", "playbooks", "node/mxcluster")  # of the project: what they say decides, too


def of_sources(project: str) -> str:
    """A digest of what the roles do. It is taken when a run begins: they may be edited while it goes on."""
    return _of_files([os.path.join(folder, name) for source in SOURCES
                      for folder, _, names in os.walk(os.path.join(project, source))
                      for name in names if not name.endswith(".pyc")])


def digest_of(sources: str, records: Sequence[str], wanted: Json) -> str:
    """What is wanted of a node: a digest of the sources, the records of all nodes (paths), and what this one was given."""
    texts = [sources, _of_files(records), json.dumps(wanted, sort_keys=True, default=str)]
    return hashlib.sha256("\n".join(texts).encode("utf-8")).hexdigest()


def _of_files(paths: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.encode("utf-8", "surrogateescape"))
        if os.path.exists(path):
            with open(path, "rb") as stream:
                digest.update(hashlib.sha256(stream.read()).digest())
    return digest.hexdigest()


def remembered(path: str) -> Json:
    """What was remembered of a node; {} if nothing was."""
    try:
        with open(path) as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def why_before_asking(known: Json, digest: str) -> Optional[str]:
    """Why there is something to do on a node, as far as that is known without asking it; None if not (pure)."""
    if not known:
        return "it has not been provisioned from here to the end"
    return None if known.get("digest") == digest else "something else is wanted of it than when it was provisioned"


def why(known: Json, seen: Json, record: Json, told: Json) -> Optional[str]:
    """Why there is something to do on a node, from what it shows (`seen`) and tells now; None if there is not (pure)."""
    before = known.get("seen") or {}
    for name in sorted(set(before) | set(seen)):
        if before.get(name) != seen.get(name):
            return "%s %s" % (name, "is new" if name not in before else "is gone" if name not in seen else "has changed")
    for name in sorted(told):
        if record.get(name) != told[name]:
            return "its record is of another time: %s has changed" % name
    return None


def remember(path: str, digest: str, seen: Json) -> None:
    """Write it down, for its owner alone: what the digest is of may be secret."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump({"digest": digest, "seen": seen}, stream, indent=1, sort_keys=True)
    os.replace(path + ".part", path)
