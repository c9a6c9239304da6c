"""Judge an ended job and write the job's report on the controller."""

DOCUMENTATION = r"""
---
module: mxcluster_report
short_description: Judge an ended job and write the job's report
description:
  - Unpacks the nodes' archives into the job's run folder, merges the events, computes the verdict,
    and writes C(verdict.json), C(curves.png) and C(report.html).
  - The module also succeeds for a failed job, so that the user gets the report. RV(verdict) has the
    success or failure of the job.
attributes:
  check_mode:
    description: In check mode the module changes nothing and reports the change that it would make.
    support: full
  diff_mode:
    description: With C(--diff) the module returns the contents before and after a change.
    support: none
author:
  - The mxcluster authors (@mxcluster)
options:
  run_dir:
    description: The job's run folder on the controller. The module creates a missing folder.
      RV(text) contains this path.
    type: path
    required: true
  waits:
    description: The results of C(mxcluster_node) with C(command=wait), by host. These results show
      lost nodes and leftovers of the job.
    type: raw
    default: {}
  contacts:
    description: The results of C(mxcluster_preflight), by host. These results show unreachable
      nodes.
    type: raw
    default: {}
  packed_plan:
    description: The result RV(mxcluster_plan#module:packed_plan). The module writes the plan to
      C(plan.json).
    type: str
    required: true
  restart:
    description:
      - Whether to decide about another attempt and return RV(restart). For this decision the module
        searches the run folders beside O(run_dir) for checkpoints.
      - The module ignores this option in an attempt that M(mxcluster_restart) has started, because
        M(mxcluster_restart) itself decides.
    type: bool
    default: false
  collected:
    description:
      - The folder that holds a job folder for each job. The job folder has a tar file C(<host>.tar)
        for each node, from C(mxcluster_node) with C(command=collect).
      - A node with a missing or damaged tar file counts as failed. The module still reads the files
        of the other nodes.
      - After the report, the module removes the folder of this job. The module also removes old
        folders of killed controllers.
    type: path
    required: true
  cache_dir:
    description: The folder for matplotlib's font cache. By default the module uses and removes a
      temporary folder.
    type: path
notes:
  - In check mode the module accesses no file, and RV(verdict) is empty.
"""

EXAMPLES = r"""
- name: Write the job's report on the controller
  mxcluster_report:
    run_dir: runs/20261121-101500-dist_gsync
    packed_plan: "{{ planned.packed_plan }}"
    collected: .state/local/collected
  run_once: true
  register: job_report

- name: Fail if the job failed
  ansible.builtin.fail:
    msg: "{{ job_report.text | join('\n') }}"
  when: not job_report.verdict.ok
"""

RETURN = r"""
verdict:
  description: The content of verdict.json.
  returned: success
  type: dict
  contains:
    ok:
      description: Whether the job succeeded. A job succeeds if every process exited with 0, every
        worker completed its work, the nodes have no leftovers, and the loss of a training program
        fell.
      type: bool
      returned: when not in check mode
    job:
      description: The job's id.
      type: str
      returned: when not in check mode
    kv:
      description: The parallel scheme.
      type: str
      returned: when not in check mode
    accuracy:
      description: The final accuracy of worker 0 on held-out samples, from 0 to 1, or null if the
        worker reported none.
      type: float
      returned: when not in check mode
    samples_per_s:
      description: The samples of all workers divided by the seconds of the slowest worker, or null
        if the workers reported no samples.
      type: float
      returned: when not in check mode
    seconds:
      description: The training time of the slowest worker in seconds. For a failed job, the run
        time of the job in seconds.
      type: float
      returned: when not in check mode
    exit_codes:
      description: The exit code of every process by name. The code is negative for a signal, and
        null if unknown.
      type: dict
      returned: when not in check mode
    first_failure:
      description: The first cause, with its C(host), C(role), C(index), C(name), C(reason),
        C(exit_code), C(time) and the last lines of the C(log). Null for a successful job.
      type: dict
      returned: when not in check mode
    left:
      description: The leftovers of the job on each searched node, as a list of strings by host.
      type: dict
      returned: when not in check mode
    warnings:
      description: The warnings for the user.
      type: list
      elements: str
      returned: when not in check mode
    files:
      description: The number of fetched files that the user's script wrote.
      type: int
      returned: when not in check mode
    nodes:
      description:
        - The state of the job on every node, by host. The states are C(done), C(failed), C(peer)
          (ended because another node's part failed), C(lease) (ended because the lease expired),
          C(stopped), C(running) and C(missing) (unknown).
      type: dict
      returned: when not in check mode
text:
  description: The verdict as lines of text.
  returned: success
  type: list
  elements: str
mxcluster_verdict_text:
  description: The lines of RV(text), which the callback C(mxcluster) shows after the recap.
  returned: success
  type: list
  elements: str
restart:
  description: The next attempt for M(mxcluster_restart), if the knob C(max_restarts) allows another
    attempt. C(text) is a line for the user, C(delay) the seconds before the attempt, C(extra) the
    knobs of the attempt. Null for no attempt. If another attempt is impossible, RV(text)
    has the reason.
  returned: when not in check mode
  type: dict
report:
  description: The path of report.html.
  returned: success
  type: str
"""

import json
import os
import shutil
import sys
import time
from typing import Any, Dict

from ansible import context

from mxcluster import file_io
from mxcluster.ansible import attempts
from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.errors import BadInput
from mxcluster.job import report, restarts, verdict
from mxcluster.job.plan import packed
from mxcluster.job.report import batch

Json = Dict[str, Any]

REGISTERED = ("waits", "contacts")
OLD = 3600.0  # seconds without a change after which a folder counts as abandoned
# The environment variable with the path of a further file for the verdict. `mxcluster launch` sets
# this variable, and reads the verdict from the file.
VERDICT_FILE = "MXCLUSTER_VERDICT"


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


def carry_out(given: Json, check: bool) -> Json:
    """Write the report of a job, and return the dict that RETURN describes.

    Args: `given` the arguments of the task; `check` True in check mode, which writes nothing.
    """
    run_dir = os.path.abspath(given["run_dir"])
    page = os.path.join(run_dir, "report.html")
    if check:
        return {
            "changed": True,
            "verdict": {},
            "text": [],
            "mxcluster_verdict_text": [],
            "report": page,
        }
    plan, job = packed.unpack(given["packed_plan"])["plan"], os.path.basename(run_dir)
    archives = {
        host: os.path.join(given["collected"], job, host + ".tar") for host in plan["nodes"]
    }
    results = [given[name] for name in ("waits", "contacts")]
    answers = {
        host: report.heard(*(of_all.get(host) for of_all in results)) for host in plan["nodes"]
    }
    failure = None
    if batch.is_batch(plan):
        # Not the folder of the archives: a node may have the name of the submit host.
        folder = os.path.join(given["collected"], job, "nodes")
        plan, archives, answers, failure = batch.split(plan, archives, answers, folder)
    try:
        found = report.assemble(run_dir, archives, plan, given["cache_dir"], answers, failure)
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
    forget(given["collected"], job)
    if os.environ.get(VERDICT_FILE):
        file_io.replace(os.environ[VERDICT_FILE], json.dumps(found), 0o600)
    lines = verdict.text(found, given["run_dir"])
    wanted = given["restart"] and not attempts.is_child()
    restart = restarts.after(plan, found, run_dir) if wanted else None
    if restart and restart["extra"]:
        problem = attempts.refusal(sys.argv[0], context.CLIARGS)
        restart = restarts.refused(problem) if problem else restart
    if restart and not restart["extra"]:
        lines.append(restart["text"])
        restart = None
    return {
        "changed": True,
        "verdict": found,
        "text": lines,
        "mxcluster_verdict_text": lines,
        "report": page,
        "restart": restart,
    }


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_report`, which Ansible runs on the controller."""
