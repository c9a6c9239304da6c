"""Judge an ended job and write the job's report on the controller.

The plugin unpacks the nodes' archives into the run folder, merges the events, computes the verdict,
and writes verdict.json, curves.png and report.html. It then removes the archives of this job, and
old archives of killed controllers. The task succeeds for a failed job, so that the user gets the
report. In check mode the plugin accesses no file, and there is no verdict.
"""

import json
import os
import shutil
import sys
import time
from typing import Mapping, Optional, Sequence

from ansible import context

from mxcluster import file_io
from mxcluster.ansible import arguments, attempts, controller_task
from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.ansible.edge import TaskResult
from mxcluster.errors import BadInput
from mxcluster.job import report, restarts, verdict_text
from mxcluster.job.plan import packed
from mxcluster.job.report import batch, files, node_ends
from mxcluster.job.restarts import Decision
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import optional
from mxcluster.model.verdict import Verdict

REGISTERED = ("waits", "contacts")
OLD = 3600.0  # seconds without a change after which a folder counts as abandoned
# The environment variable with the path of a further file for the verdict. `mxcluster launch` sets
# this variable, and reads the verdict from the file.
VERDICT_FILE = "MXCLUSTER_VERDICT"


class Arguments(Record, strict=True):
    """The arguments of the task."""

    run_dir: str = field(arguments.path)
    """The job's run folder, which may be missing; `text` has this path."""
    waits: Mapping[str, TaskResult] = field(arguments.json, default={})
    """{host: the last result of mxcluster_node command=wait}, which shows lost nodes and leftovers
    of the job. The task gives the name of the variable."""
    contacts: Mapping[str, TaskResult] = field(arguments.json, default={})
    """{host: the result of mxcluster_preflight}, which shows lost nodes. The
    task gives the name of the variable."""
    packed_plan: str = field(arguments.text)
    """The result of mxcluster_plan, for plan.json."""
    restart: bool = field(arguments.flag, default=False)
    """True if the plugin decides about another attempt. An attempt of mxcluster_restart ignores
    this argument, because mxcluster_restart itself decides."""
    collected: str = field(arguments.path)
    """The folder with <job>/<host>.tar for each node. A node with a missing or damaged file counts
    as failed."""
    inventory: str = field(arguments.text, default="")
    """The argument of -i in commands for the user, or empty for the default inventory."""
    cache_dir: Optional[str] = field(optional(arguments.path), default=None)
    """The folder of matplotlib's font cache; None for a temporary folder."""


class Result(controller_task.Result, nulls=True):
    """The verdict and the report."""

    verdict: Optional[Verdict] = field(optional(record(Verdict)), default=None)
    """The content of verdict.json; None in check mode."""
    text: Sequence[str] = field(arguments.texts, default=[])
    """The verdict."""
    report: str = field(arguments.path)
    """The page."""
    restart: Optional[Decision] = field(optional(record(Decision)), default=None)
    """The decision about another attempt; None for no attempt."""


def forget(collected: str, job: str) -> None:
    """Remove the nodes' archives of `job`, and the old archives of killed controllers.

    Args: `collected` the folder that holds a folder of archives for each job; `job` the job's id.
    """
    for name in os.listdir(collected) if os.path.isdir(collected) else []:
        folder = os.path.join(collected, name)
        try:
            newest = max(
                os.lstat(path).st_mtime
                for path in [folder] + [os.path.join(folder, one) for one in os.listdir(folder)]
            )
        except OSError:  # another controller has removed the folder
            continue
        if name == job or time.time() - newest > OLD:
            shutil.rmtree(folder, ignore_errors=True)


def carry_out(given: Arguments, check: bool) -> Result:
    """Write the report of a job.

    Args: `given` the arguments of the task; `check` True in check mode, which writes nothing.
    """
    run_dir = os.path.abspath(given.run_dir)
    page = os.path.join(run_dir, "report.html")
    if check:
        return Result(changed=True, mxcluster_verdict_text=[], report=page)
    plan, job = packed.unpack(given.packed_plan).plan, os.path.basename(run_dir)
    archives = {host: os.path.join(given.collected, job, host + ".tar") for host in plan.nodes}
    ends = {
        host: node_ends.of_results(given.waits.get(host), given.contacts.get(host))
        for host in plan.nodes
    }
    failure = None
    if plan.batch:
        # Not the folder of the archives: a node may have the name of the submit host.
        folder = os.path.join(given.collected, job, "nodes")
        plan, archives, ends, failure = batch.split(plan, archives, ends, folder)
    try:
        found = report.assemble(
            run_dir, archives, plan, given.cache_dir, ends, failure, given.inventory
        )
    except ImportError as error:
        raise BadInput(
            "the report needs jinja2 and matplotlib (%s). Run `make venv` on the controller" % error
        )
    except OSError as error:
        raise BadInput(
            "cannot write the report in %s (%s: %s): give the controller space and the right to "
            "write there, then fetch the results again with train.yml -e attach=%s"
            % (run_dir, error.filename or run_dir, error.strerror or error, job)
        )
    forget(given.collected, job)
    if os.environ.get(VERDICT_FILE):
        file_io.replace(os.environ[VERDICT_FILE], json.dumps(found.encode()), 0o600)
    lines = verdict_text.text(found, given.run_dir)
    may_restart = given.restart and not attempts.is_child()
    restart = restarts.after(files.read_plan(run_dir), found, run_dir) if may_restart else None
    if restart and restart.extra:
        problem = attempts.refusal(sys.argv[0], context.CLIARGS)
        restart = restarts.refused(problem) if problem else restart
    if restart and not restart.extra:
        lines.append(restart.text)
        restart = None
    return Result(
        changed=True,
        verdict=found,
        text=lines,
        mxcluster_verdict_text=lines,
        report=page,
        restart=restart,
    )


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_report`, which Ansible runs on the controller."""
