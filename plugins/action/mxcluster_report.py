"""Call mxcluster.job.report on the controller."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_report
short_description: Judge a job that has ended and write its report
description:
  - Unpacks the nodes' archives into the job's run folder, merges the events, computes the verdict,
    and writes C(verdict.json), C(curves.png) and C(report.html).
  - A failed job does not make this module fail, since its report is needed most; check RV(verdict)
    afterwards.
attributes:
  check_mode:
    description: Runs without a change, and reports the change that it would make.
    support: full
  diff_mode:
    description: Returns what a change would replace, for C(--diff).
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
    description: The results of C(mxcluster_preflight), by host. They show silent nodes.
    type: raw
    default: {}
  packed_plan:
    description: The plan of the job as C(mxcluster_plan) returns it, written to C(plan.json).
    type: str
    required: true
  restart:
    description:
      - Whether to return RV(restart), which searches for checkpoints beside O(run_dir), too.
      - An attempt that M(mxcluster_restart) has started ignores this option. The first command
        decides.
    type: bool
    default: false
  collected:
    description:
      - The folder that holds a folder for each job, with C(<host>.tar) for each node, as
        C(mxcluster_node) with C(command=collect) packs it.
      - A node with a missing or damaged file counts as failed; the files of the other nodes are
        used.
      - The folder of this job is removed once the report is written. So are old folders of
        controllers that were killed during the collection.
    type: path
    required: true
  cache_dir:
    description: The folder for matplotlib's font cache. By default a temporary folder is used and
      removed.
    type: path
notes:
  - In check mode nothing is read or written; RV(verdict) is then empty.
"""

EXAMPLES = r"""
- name: Write the report
  mxcluster_report:
    run_dir: runs/20261121-101500-dist_gsync
    packed_plan: "{{ planned.packed_plan }}"
    collected: .state/local/collected
  run_once: true
  register: job_report

- name: Fail if the job did
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
      description: Whether every process exited with 0 and every worker of a program reported
        success.
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
      description: How long the workers trained; of a failed job, how long it ran.
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
      description: For each checked node, the leftovers of the job, a text each.
      type: dict
      returned: when not in check mode
    warnings:
      description: Warnings for the user, a text each.
      type: list
      elements: str
      returned: when not in check mode
    files:
      description: The number of fetched files that a script wrote.
      type: int
      returned: when not in check mode
    nodes:
      description:
        - How the job ended on every node; C(done), C(failed), C(peer) (because another node's part
          failed), C(lease), C(stopped), C(running) or C(missing).
      type: dict
      returned: when not in check mode
text:
  description: The verdict as lines of text.
  returned: success
  type: list
  elements: str
mxcluster_verdict_text:
  description: The same lines; the callback C(mxcluster) shows them after the recap.
  returned: success
  type: list
  elements: str
restart:
  description: The next attempt that the knob C(max_restarts) allows; C(text), C(delay) and
    C(extra), its knobs, for M(mxcluster_restart). Null for none; RV(mxcluster_verdict_text) then
    has the reason.
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
OLD = 3600.0  # seconds after which no controller is still fetching the archives of a job


def forget(collected, job):
    """Remove the archives of the job, and old archives of controllers that were killed."""
    for name in os.listdir(collected) if os.path.isdir(collected) else []:
        folder = os.path.join(collected, name)
        try:
            newest = max(
                os.lstat(path).st_mtime
                for path in [folder] + [os.path.join(folder, one) for one in os.listdir(folder)]
            )
        except OSError:  # another controller has removed it
            continue
        if name == job or time.time() - newest > OLD:
            shutil.rmtree(folder, ignore_errors=True)


def carry_out(given, check):
    """Write the report; return the verdict and the path of the report."""
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
            "cannot write the report in %s (%s: %s): correct this on the controller, then fetch "
            "the results again with train.yml -e attach=%s"
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
    """The action plugin that Ansible loads."""
