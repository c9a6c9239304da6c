"""Detect on the controller whether a node has changed since its last provisioning.

The controller stores a digest of a node's provisioning inputs, and the state of the installed
files. A node needs no provisioning while the digest, the files and the node's facts are unchanged.
"""

import hashlib
import json
import os
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from mxcluster.cluster.driver import Jobs
from mxcluster.errors import some
from mxcluster.file_io import read_intact, replace
from mxcluster.model.module_answers import file_states
from mxcluster.model.node_record import NodeFacts
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import table, text

# Folders of the project, whose files are inputs of the provisioning.
SOURCES = ("roles", "plugins", "playbooks", "python/mxcluster")


class State(Record):
    """The state of a node after its last provisioning, as the controller stores it."""

    digests: Mapping[str, str] = field(table(text, text, 100000), default={})
    """{input of the provisioning: its digest}; empty for a node that needs provisioning."""
    seen: Mapping[str, str] = field(file_states, default={})
    """{path: state of the file}."""
    layout: Mapping[str, str] = field(table(text, text), default={})
    """{variable on which running jobs rely: its value}."""


def of_sources(project: str) -> str:
    """Return a sha256 (hex) of all files in SOURCES below the folder `project`, except bytecode.

    A playbook calls this function at its start, because a user may edit the files during the run.
    Python writes a file of bytecode under another name first, so the name of the folder counts.
    """
    return of_files(
        [
            os.path.join(folder, name)
            for source in SOURCES
            for folder, _, names in os.walk(os.path.join(project, source))
            for name in names
            if os.path.basename(folder) != "__pycache__" and not name.endswith(".pyc")
        ]
    )


def of_value(value: object) -> str:
    """Return a sha256 (hex) of a value of any type that JSON or str() can write."""
    written = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(written.encode("utf-8")).hexdigest()


def of_files(paths: Sequence[str]) -> str:
    """Return a sha256 (hex) of the names and contents of files. A missing file has no content."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.encode("utf-8", "surrogateescape"))
        if os.path.exists(path):
            with open(path, "rb") as stream:
                digest.update(hashlib.sha256(stream.read()).digest())
    return digest.hexdigest()


def remembered(path: str) -> State:
    """Return the state that `remember` saved in `path`, an empty state for an unreadable file."""
    return read_intact(path, State.decode) or State()


def why_before_asking(
    known: State, digests: Mapping[str, str], cluster: Mapping[str, str]
) -> Optional[str]:
    """Return the reason to provision a node, or None if its own inputs are unchanged.

    The function needs no connection to the node.

    Args: `known` the state of the last provisioning; `digests` {input of the node: its present
    digest}; `cluster` the same for inputs that only the cluster files and SSH files contain.
    """
    if not known.digests:
        return "provision.yml has never completed for this node on this controller"
    before = {name: value for name, value in known.digests.items() if name not in cluster}
    changed = _differing(before, digests)
    why = "the node's settings have changed since the last provisioning: " + some(changed)
    return why if changed else None


def why_cluster(known: State, cluster: Mapping[str, str]) -> Optional[str]:
    """Return the reason to write the cluster files and SSH files of a node again, else None.

    Args: as for `why_before_asking`.
    """
    before = {name: known.digests[name] for name in cluster if name in known.digests}
    changed = _differing(before, cluster)
    return "%s changed since the last provisioning" % some(changed) if changed else None


def _differing(before: Mapping[str, str], now: Mapping[str, str]) -> List[str]:
    return [name for name in sorted(set(before) | set(now)) if before.get(name) != now.get(name)]


def why(
    known: State, seen: Mapping[str, str], record: NodeFacts, facts: NodeFacts
) -> Optional[str]:
    """Return the reason to provision a node again, None for an unchanged node.

    The function compares the node's files with the saved state, and the node's facts with
    the node record.

    Args: `known` the state of the last provisioning; `seen` {path: present state}; `record` the
    node record; `facts` the present facts.
    """
    before = known.seen
    for name in sorted(set(before) | set(seen)):
        if name not in before:
            return "%s is new" % name
        if name not in seen:
            return "%s is gone" % name
        if before[name] != seen[name]:
            return "%s has changed" % name
    for name in sorted(NodeFacts.FIELDS):
        if getattr(record, name) != getattr(facts, name):
            return "the node record is out of date: %s has changed" % name
    return None


def moved(known: State, layout: Mapping[str, str]) -> Dict[str, Tuple[str, str]]:
    """Return {name: (old value, new value)} of the changed layout variables.

    A running job relies on the old values. An old state without a layout gives {}.

    Args: `known` the state of the last provisioning; `layout` {name: new value}.
    """
    before = known.layout
    return {
        name: (before[name], layout[name])
        for name in sorted(layout)
        if name in before and before[name] != layout[name]
    }


def refusal(host: str, changes: Mapping[str, Tuple[str, str]], jobs: Jobs) -> Optional[str]:
    """Return the message that refuses `changes` of the node `host`.

    Returns None if the node has no running or prepared job.

    Args: `changes` the result of `moved`; `jobs` the node's jobs.
    """
    running = jobs.running()
    if not running:
        return None
    values = ", ".join("%s=%s (now %s)" % (name, *pair) for name, pair in changes.items())
    return (
        "%s: job %s runs on this node with %s. After the change no playbook would find the job. "
        "Wait until the job ends, or run stop.yml with the old value. Then run provision.yml again"
        % (host, some(running), values)
    )


def remember(path: str, state: State) -> None:
    """Save the state of a node in the file `path`, readable by its owner only.

    The values of the state may be secret.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    replace(path, json.dumps(state.encode(), indent=1, sort_keys=True), 0o600)


def forget(path: str, kept: Sequence[str], check: bool) -> bool:
    """Remove the state of a node from the file `path` after a reset. Return True on a change.

    The state of the files `kept`, which stay on the node, stays too. So a second reset still finds
    that a person has changed them.

    Args: `check` True to write nothing.
    """
    before = remembered(path)
    after = State(seen={name: look for name, look in before.seen.items() if name in kept})
    changed = os.path.exists(path) and after != before
    if changed and not check:
        if after.seen:
            remember(path, after)
        else:
            os.unlink(path)
    return changed
