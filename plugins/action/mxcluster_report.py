"""Judge an ended job and write its report on the controller, with `mxcluster.job.report`."""

DOCUMENTATION = r"""
---
module: mxcluster_report
short_description: Judge a job that has ended and write its report
description:
  - Unpacks the nodes' archives into the job's run folder, merges the events, computes the verdict,
    and writes C(verdict.json), C(curves.png) and C(report.html).
  - This module also succeeds for a failed job, so that the user gets the report. RV(verdict) says
    whether the job failed.
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
    description: The job's folder on the controller, created if missing. RV(text) names it as given
      here.
    type: path
    required: true
  waits:
    description: The results of C(mxcluster_node) with C(command=wait), by host. They show lost
      nodes, and leftovers of the job.
    type: raw
    default: {}
  contacts:
    description: The results of C(mxcluster_preflight), by host. They show unreachable nodes.
    type: raw
    default: {}
  packed_plan:
    description: The plan of the job as C(mxcluster_plan) returns it, written to C(plan.json).
    type: str
    required: true
  restart:
    description:
      - Whether to decide about another attempt and return RV(restart). The module then searches the
        run folders beside O(run_dir) for checkpoints.
      - An attempt that M(mxcluster_restart) has started ignores this option, because the first
        command decides.
    type: bool
    default: false
  collected:
    description:
      - The folder that holds a folder for each job. That folder has a file C(<host>.tar) for each
        node, as C(mxcluster_node) with C(command=collect) packs it.
      - A node with a missing or damaged file counts as failed; the files of the other nodes are
        used.
      - The module removes the folder of this job once the report is written. It also removes old
        folders of controllers that were killed during the collection.
    type: path
    required: true
  cache_dir:
    description: The folder for matplotlib's font cache. By default a temporary folder is used and
      removed.
    type: path
notes:
  - In check mode the module reads and writes nothing, and RV(verdict) is empty.
"""

EXAMPLES = r"""
- name: Write the report
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
      description: Whether the job succeeded; every process exited with 0, every worker did all its
        work, nothing of the job is left, and the loss of a training program fell.
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
      description: Worker 0's accuracy on held-out samples at the end, null if it reported none.
      type: float
      returned: when not in check mode
    samples_per_s:
      description: Samples of all workers divided by the seconds of the slowest worker, null if the
        workers reported none.
      type: float
      returned: when not in check mode
    seconds:
      description: The seconds that the slowest worker trained; for a failed job, the seconds that
        the job ran.
      type: float
      returned: when not in check mode
    exit_codes:
      description: The exit code of every process by name, negative for a signal, null if unknown.
      type: dict
      returned: when not in check mode
    first_failure:
      description: The first cause, with its C(host), C(role), C(index), C(name), C(reason),
        C(exit_code), C(time) and the last lines of its C(log); null if the job is ok.
      type: dict
      returned: when not in check mode
    left:
      description: The leftovers of the job on each searched node, a list of texts by host.
      type: dict
      returned: when not in check mode
    warnings:
      description: The warnings for the user.
      type: list
      elements: str
      returned: when not in check mode
    files:
      description: The number of fetched files that a script wrote.
      type: int
      returned: when not in check mode
    nodes:
      description:
        - The state of the job on every node; C(done), C(failed), C(peer) (ended because another
          node's part failed), C(lease) (ended because the lease ran out), C(stopped), C(running) or
          C(missing) (unknown).
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
  description: The next attempt, for M(mxcluster_restart), if the knob C(max_restarts) allows one;
    C(text), a line for the user, C(delay), the seconds until it starts, and C(extra), its knobs.
    Null for no attempt; if an attempt was refused, RV(text) has the reason.
  returned: when not in check mode
  type: dict
report:
  description: The path of report.html.
  returned: success
  type: str
"""

import os
import shutil
import sys
import time

from ansible import context

from mxcluster.ansible import attempts
from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.errors import BadInput
from mxcluster.job import report, restarts, verdict
from mxcluster.job.plan import packed

REGISTERED = ("waits", "contacts")
OLD = 3600.0  # seconds without a change, after which no controller still fetches archives


def forget(collected, job):
    """Remove the nodes' archives of `job`, and old archives of killed controllers.

    Args: `collected` the folder with a folder of archives for each job; `job` the job's id.
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


def carry_out(given, check):
    """Write the report of a job, and return the values that RETURN describes.

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
    try:
        found = report.assemble(run_dir, archives, plan, given["cache_dir"], answers)
    except ImportError as error:
        raise BadInput(
            "the report needs jinja2 and matplotlib (%s). Run `make venv` on the controller" % error
        )
    except OSError as error:
        raise BadInput(
            "cannot write the report in %s (%s: %s): correct the cause on the controller, then "
            "fetch the results again with train.yml -e attach=%s"
            % (run_dir, error.filename or run_dir, error.strerror or error, job)
        )
    forget(given["collected"], job)
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
