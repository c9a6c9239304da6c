"""Judge a cluster on the controller with `mxcluster.cluster.verify`.

The plugin compares the check results of the nodes with each other and with the plan, and writes one
verdict as JSON, in check mode too. With `report` it also writes a report without names, addresses
and secrets of the site. The task succeeds if a check failed.
"""

import json
import os
import tarfile
import time
from typing import List, Union

from mxcluster.ansible import arguments, controller_software, controller_task
from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.cluster import verify
from mxcluster.cluster.verify import acceptance, speeds
from mxcluster.errors import DAMAGED
from mxcluster.file_io import read_intact, replace
from mxcluster.job import lost_nodes
from mxcluster.job.plan import packed
from mxcluster.model import shapes
from mxcluster.model.check_answer import Checked, CheckError, RendezvousReport
from mxcluster.model.cluster_verdict import ClusterVerdict, Line
from mxcluster.model.record import Record, field, record
from mxcluster.model.status import Status

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
MOST = 16 << 20  # maximum number of bytes that `report` reads of a rendezvous result


class Arguments(Record, strict=True):
    """The arguments of the task."""

    packed_plan: str = field(arguments.text)
    """The plan of the rendezvous job, from mxcluster_plan."""
    answers_dir: str = field(arguments.path)
    """The folder with <host>.json, the check results of each node."""
    archives_dir: str = field(arguments.path)
    """The folder with <host>.tar, the rendezvous result of each node; a missing file is a missing
    result."""
    wanted: verify.Wanted = field(record(verify.Wanted))
    path: str = field(arguments.path)
    """The file for the verdict."""
    speeds_path: str = field(arguments.path)
    """The file for the measured speeds."""
    runs_dir: str = field(arguments.path)
    """The folder of the runs, whose verdicts name lost nodes, and of the report."""
    report: bool = field(arguments.flag, default=False)
    """True if a report for other people is written, too."""


class Result(controller_task.Result):
    """The verdict. The exit status is 1 if a check failed, 2 if a node did not answer, else 0."""

    verdict: ClusterVerdict = field(record(ClusterVerdict))
    """The content of the file `path`."""


def report(path: str) -> Union[RendezvousReport, CheckError, None]:
    """Return the result of a node's rendezvous from rendezvous.json in its archive `path`.

    Returns the error if the node's agent ended before the rendezvous, or if the content is invalid.
    Returns None for an unreadable archive.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            names = archive.getnames()
            name = "rendezvous.json" if "rendezvous.json" in names else "status.json"
            found = json.loads(archive.extractfile(name).read(MOST).decode("utf-8"))
    except (OSError, tarfile.TarError) + DAMAGED:
        return None
    try:
        if name == "rendezvous.json":
            return RendezvousReport.decode(found)
        ended = Status.decode(found)
    except shapes.Wrong as error:
        return CheckError(
            error="the rendezvous result of this host is invalid: %s. Find the program that "
            "changed the files of the job on the host" % error
        )
    failure = ended.first_failure
    lines = [failure.reason, *failure.log[-3:]] if failure else ["ended: %s" % ended.reason]
    return CheckError(error="; ".join(lines))


def carry_out(given: Arguments, check: bool) -> Result:
    """Write the verdict to the file `given.path`.

    Args: `given` the arguments of the task; `check` has no effect.
    """
    known = packed.unpack(given.packed_plan)
    nodes = known.plan.nodes
    answers = {
        host: read_intact(os.path.join(given.answers_dir, host + ".json"), Checked.decode)
        for host in nodes
    }
    reports = {host: report(os.path.join(given.archives_dir, host + ".tar")) for host in nodes}
    more: List[Line] = []
    kept: List[str] = []
    if given.wanted.speed:
        found = speeds.of(answers, reports, time.time())
        if found.nodes:
            kept.append("speeds    %s" % given.speeds_path)
            replace(os.path.abspath(given.speeds_path), json.dumps(found.encode(), indent=1) + "\n")
        more = [*speeds.lines(found, answers, reports), lost_nodes.line(given.runs_dir, nodes)]
    verdict = verify.judge(nodes, answers, reports, given.wanted, more)
    replace(os.path.abspath(given.path), json.dumps(verdict.encode(), indent=1))
    if given.report:
        software = controller_software.look(PROJECT, known.looks)
        made = acceptance.of(verdict, nodes, answers, software, time.time())
        kept.append("report    %s" % acceptance.write(given.runs_dir, made))
    return Result(
        changed=True,
        verdict=verdict,
        mxcluster_verdict_text=verify.text(verdict, given.path) + kept,
        mxcluster_exit_status=verdict.status,
    )


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_verify`, which Ansible runs on the controller."""
