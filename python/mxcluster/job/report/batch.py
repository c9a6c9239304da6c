"""Split the archive of a batch job into one archive for each node.

All nodes share the job folder, so the submit host packs the files of all nodes: the files of the
head, and the files of each node in nodes/<host>/<job>/. Programs of the submitting user have
written these files, so this module checks all names and values.
"""

import json
import os
import tarfile
from typing import IO, Dict, Mapping, Optional, Tuple, cast

from mxcluster.errors import DAMAGED, BadInput
from mxcluster.job import listing
from mxcluster.job.report.statuses import failure_of_engine
from mxcluster.model import names, shapes
from mxcluster.model.answers import NodeResult
from mxcluster.model.failures import Failure
from mxcluster.model.plan import Node, Plan
from mxcluster.model.record import Record, field, record
from mxcluster.model.status import Status
from mxcluster.model.submission import NODES

# Errors of a damaged or forged archive.
_DAMAGED = (*DAMAGED, BadInput, OSError, EOFError, IndexError, tarfile.TarError)
LARGEST = 64 << 20  # maximum size of a JSON file of the head in bytes
MOST = 5000  # nodes
_parts = shapes.table(shapes.words, record(NodeResult), MOST)  # PARTS of `agent.batch_job`


class PlannedNodes(Record):
    """The nodes of the head's plan, whose names become names of files."""

    nodes: Mapping[str, Node] = field(shapes.table(names.hostname, record(Node), MOST))


def split(
    plan: Plan, archives: Dict[str, str], ends: Dict[str, NodeResult], folder: str
) -> Tuple[Plan, Dict[str, str], Dict[str, NodeResult], Optional[Failure]]:
    """Return (plan, archives, ends, failure) of a batch job, for all nodes.

    "failure" is the first failure that the head or the submit host has recorded, such as a
    cancelled job, or None. If the job ended before the head made the plan, the submit host is the
    only node, and the function returns its arguments.

    Args: `plan` the submission; `archives` {submit host: path of the tar file}; `ends` {submit
    host: its NodeResult}; `folder` the folder for the archives of the nodes.
    """
    submit_host = next(iter(plan.nodes))
    submitted = ends.get(submit_host) or NodeResult()
    failure = failure_of_engine(submitted.status)
    path = archives.get(submit_host)
    if not path or not os.path.exists(path):
        return plan, archives, ends, failure
    try:
        with tarfile.open(path, "r:") as tar:
            known = {member.name: member for member in tar.getmembers() if member.isreg()}
            made = _read(tar, known.get("planned.json"))
            parts = _parts(_read(tar, known.get("parts.json")) or {})
            status = shapes.optional(record(Status))(_read(tar, known.get("status.json")))
            failure = failure or failure_of_engine(status)
            if made is None:
                return plan, archives, ends, failure
            place = plan.nodes[submit_host]
            paths = listing.Paths(place.python, os.path.dirname(place.job_dir))
            hosts = sorted(PlannedNodes.decode(made).nodes)
            real = listing.adopt(made, plan.job, dict.fromkeys(hosts, paths))
            first = real.processes[0].host
            found = {
                host: _of_node(tar, known, host, plan.job, folder, host == first) for host in hosts
            }
    except _DAMAGED:
        return plan, archives, ends, failure  # `report.archive` reports the damaged archive
    results = {
        host: NodeResult(
            behind=submitted.behind if host == first else [],
            left=parts[host].left if host in parts else None,
            lost=parts[host].lost if host in parts else None,
        )
        for host in hosts
    }
    return real, found, results, failure


def _read(tar: tarfile.TarFile, member: Optional[tarfile.TarInfo]) -> object:
    """Return the content of the JSON file `member` of `tar`, None without this member."""
    if member is None or member.size > LARGEST:
        return None
    return json.loads(cast(IO[bytes], tar.extractfile(member)).read().decode("utf-8"))


def _of_node(
    tar: tarfile.TarFile,
    known: Dict[str, tarfile.TarInfo],
    host: str,
    job: str,
    folder: str,
    first: bool,
) -> str:
    """Write the archive of the node `host`, and return its path.

    Args: `tar` the archive of the job; `known` {name: member} of `tar`; `job` the id of the job;
    `folder` the folder of the new archive; `first` True for the first node, whose archive also gets
    the checkpoints and the log of the head.
    """
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, host + ".tar")
    prefix = "/".join((NODES, host, job, ""))
    with tarfile.open(path, "w") as target:
        for name in sorted(known):
            if name.startswith(prefix):
                _copy(tar, known[name], target, name[len(prefix) :])
            elif first and (name == "batch.log" or name.startswith("checkpoints/")):
                _copy(tar, known[name], target, name)
    return path


def _copy(
    tar: tarfile.TarFile, member: tarfile.TarInfo, target: tarfile.TarFile, name: str
) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = member.size, member.mtime, member.mode
    target.addfile(info, cast(IO[bytes], tar.extractfile(member)))
