"""Detect on the controller whether a node has changed since its last provisioning.

The controller stores a digest of a node's provisioning inputs, and the state of the installed
files. A node needs no provisioning while the digest, the files and the node's facts are unchanged.
"""

import hashlib
import json
import os
from typing import Any, Dict, List, Optional, Sequence

from mxcluster.errors import DAMAGED, some
from mxcluster.file_io import replace
from mxcluster.model.node_record import NodeFacts

Json = Dict[str, Any]

SOURCES = (
    "roles",
    "plugins",
    "playbooks",
    "python/mxcluster",
)  # folders of the project, whose files are inputs of the provisioning


def of_sources(project: str) -> str:
    """Return a sha256 (hex) of all files in SOURCES below the folder `project`, except bytecode.

    A playbook calls this function at its start, because a user may edit the files during the run.
    Python writes a file of bytecode under another name first, so the name of the folder counts.
    """
    return _of_files(
        [
            os.path.join(folder, name)
            for source in SOURCES
            for folder, _, names in os.walk(os.path.join(project, source))
            for name in names
            if os.path.basename(folder) != "__pycache__" and not name.endswith(".pyc")
        ]
    )


def digests_of(files: Dict[str, Sequence[str]], values: Json) -> Dict[str, str]:
    """Return {name: sha256 (hex)} of the inputs of a node's provisioning.

    Args: `files` {name: paths of input files}, such as node records; `values` {name: another
    input}, of any type that JSON or str() can write.
    """
    found = {name: _of_files(paths) for name, paths in files.items()}
    for name, value in values.items():
        text = json.dumps(value, sort_keys=True, default=str)
        found[name] = hashlib.sha256(text.encode("utf-8")).hexdigest()
    return found


def _of_files(paths: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.encode("utf-8", "surrogateescape"))
        if os.path.exists(path):
            with open(path, "rb") as stream:
                digest.update(hashlib.sha256(stream.read()).digest())
    return digest.hexdigest()


def remembered(path: str) -> Json:
    """Return the state (dict) that `remember` saved in `path`, {} for an unreadable file."""
    try:
        with open(path) as stream:
            found = json.load(stream)
    except (OSError,) + DAMAGED:
        return {}
    return found if isinstance(found, dict) else {}


def why_before_asking(known: Json, digests: Dict[str, str]) -> Optional[str]:
    """Return the reason to provision a node, or None if the digests of its inputs are unchanged.

    The function needs no connection to the node.

    Args: `known` the result of `remembered`; `digests` the present result of `digests_of`.
    """
    if "digest" in known:
        return "an earlier version of mxcluster provisioned this node"
    before = known.get("digests")
    if not isinstance(before, dict) or not before:
        return "provision.yml has never completed for this node on this controller"
    changed = [
        name for name in sorted(set(before) | set(digests)) if before.get(name) != digests.get(name)
    ]
    return (
        "the node's settings have changed since the last provisioning: %s" % some(changed)
        if changed
        else None
    )


def why(known: Json, seen: Json, record: NodeFacts, facts: NodeFacts) -> Optional[str]:
    """Return the reason to provision a node again, None for an unchanged node.

    The function compares the node's files with the saved state, and the node's facts with
    the node record.

    Args: `known` the result of `remembered`; `seen` {path: present state}; `record` the node
    record; `facts` the present facts.
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
    for name in sorted(NodeFacts.FIELDS):
        if getattr(record, name) != getattr(facts, name):
            return "the node record is out of date: %s has changed" % name
    return None


def moved(known: Json, layout: Json) -> Dict[str, List[Any]]:
    """Return {name: [old value, new value]} of the changed layout variables.

    A running job relies on the old values. An old state without a layout gives {}.

    Args: `known` the result of `remembered`; `layout` {name: new value}.
    """
    before = known.get("layout") or {}
    return {
        name: [before[name], layout[name]]
        for name in sorted(layout)
        if name in before and before[name] != layout[name]
    }


def refusal(host: str, changes: Dict[str, List[Any]], jobs: Sequence[Json]) -> Optional[str]:
    """Return the message that refuses `changes` of the node `host`.

    Returns None if the node has no running or prepared job.

    Args: `changes` the result of `moved`; `jobs` the node's jobs, as in the result of
    `agent.jobs.listing`.
    """
    running = [job["job"] for job in jobs if job["state"] in ("running", "prepared")]
    if not running:
        return None
    return (
        "%s: job %s runs on this node with %s. After the change no playbook would find the job. "
        "Wait until the job ends, or run stop.yml with the old value. Then run provision.yml again"
        % (
            host,
            some(running),
            ", ".join("%s=%s (now %s)" % (name, *pair) for name, pair in changes.items()),
        )
    )


def remember(path: str, digests: Dict[str, str], seen: Json, layout: Json) -> None:
    """Save the state of a node in the file `path`, readable by its owner only.

    The values of the state may be secret.

    Args: `digests` the result of `digests_of`, or {} if the node must be provisioned again; `seen`
    and `layout` as in `why` and `moved`.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    saved = {"digests": digests, "seen": seen, "layout": layout}
    replace(path, json.dumps(saved, indent=1, sort_keys=True), 0o600)
