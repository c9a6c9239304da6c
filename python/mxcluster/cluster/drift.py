"""Detect on the controller whether a node has changed since provision.yml.

The controller keeps a digest of all inputs of a node's provisioning, and the state of the installed
files. If both are unchanged, and the node's facts match its record, the node needs no provisioning.
"""

import hashlib
import json
import os
from typing import Any, Dict, List, Optional, Sequence

from mxcluster.errors import some
from mxcluster.file_io import replace

Json = Dict[str, Any]

SOURCES = (
    "roles",
    "plugins",
    "playbooks",
    "python/mxcluster",
)  # folders of the project whose files are inputs, too


def of_sources(project: str) -> str:
    """Return a sha256 (hex) of all files in SOURCES below the folder `project`.

    A run computes the digest at its start, because the files may be edited during the run.
    """
    return _of_files(
        [
            os.path.join(folder, name)
            for source in SOURCES
            for folder, _, names in os.walk(os.path.join(project, source))
            for name in names
            if not name.endswith(".pyc")
        ]
    )


def digest_of(sources: str, records: Sequence[str], wanted: Json) -> str:
    """Return a sha256 (hex) of all inputs of a node's provisioning.

    Args: `sources` from `of_sources`; `records` the paths of all node records; `wanted` the node's
    own values.
    """
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
    """Return the state that `remember` saved in the file `path`; {} without a readable file."""
    try:
        with open(path) as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def why_before_asking(known: Json, digest: str) -> Optional[str]:
    """Return the reason to provision a node, if the controller's own files show one, or None.

    The function needs no facts from the node.

    Args: `known` from `remembered`; `digest` the present digest, from `digest_of`.
    """
    if not known.get("digest"):
        return "provision.yml has never completed for this node on this controller"
    return (
        None
        if known.get("digest") == digest
        else "its settings have changed since it was provisioned"
    )


def why(known: Json, seen: Json, record: Json, told: Json) -> Optional[str]:
    """Return the reason to provision a node, from its facts; None if the node has not changed.

    Args: `known` from `remembered`; `seen` {file: its present state}; `record` the node record;
    `told` the node's present facts.
    """
    before = known.get("seen") or {}
    for name in sorted(set(before) | set(seen)):
        if before.get(name) != seen.get(name):
            return "%s %s" % (
                name,
                "is new"
                if name not in before
                else "is gone"
                if name not in seen
                else "has changed",
            )
    for name in sorted(told):
        if record.get(name) != told[name]:
            return "its record is out of date: %s has changed" % name
    return None


def moved(known: Json, layout: Json) -> Dict[str, List[Any]]:
    """Return {name: [old value, new value]} of the layout variables that would change.

    Running jobs rely on these variables. If an earlier version saved the state, the state has no
    layout, and the result is empty.

    Args: `known` from `remembered`; `layout` {name: new value}.
    """
    before = known.get("layout") or {}
    return {
        name: [before[name], layout[name]]
        for name in sorted(layout)
        if name in before and before[name] != layout[name]
    }


def refusal(host: str, changes: Dict[str, List[Any]], jobs: Sequence[Json]) -> Optional[str]:
    """Return a message that refuses these changes of the node `host`, None if no job runs there.

    Args: `changes` from `moved`; `jobs` of the node, as `agent.jobs.listing` lists them.
    """
    running = [job["job"] for job in jobs if job["state"] in ("running", "prepared")]
    if not running:
        return None
    return (
        "%s: job %s runs there with %s. After the change no playbook would find the job. Wait for "
        "its end, or run stop.yml with the old value; then run provision.yml again"
        % (
            host,
            some(running),
            ", ".join("%s=%s (now %s)" % (name, *pair) for name, pair in changes.items()),
        )
    )


def remember(path: str, digest: str, seen: Json, layout: Json) -> None:
    """Save the state of a node in the file `path`, with mode 0600 because inputs may be secret.

    Args: `digest` from `digest_of`, "" if the node must be provisioned; `seen` and `layout` as in
    `why` and `moved`.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    saved = {"digest": digest, "seen": seen, "layout": layout}
    replace(path, json.dumps(saved, indent=1, sort_keys=True), 0o600)
