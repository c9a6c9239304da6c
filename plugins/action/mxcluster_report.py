"""Doorway to mxcluster.report on the controller; what it does is in node/mxcluster/report."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_report
short_description: Judge a job that has ended and write its report
description:
  - Unpacks what the nodes have sent into the job's run folder, merges the events, computes the verdict, and writes
    C(verdict.json), C(curves.png) and C(report.html).
  - A job that failed does not make this module fail, since its report is wanted all the more; look at
    RV(verdict) afterwards.
author:
  - The mxcluster authors (@mxcluster)
options:
  run_dir:
    description: The job's folder on the controller, made if it is not there. RV(text) names it as it is given here.
    type: path
    required: true
  waits:
    description: The variable in which each node has the result of C(mxcluster_node) with C(command=wait), or these results
      by host. They tell of a node that is gone, and of what is left of the job.
    type: raw
    default: {}
  contacts:
    description: The same for C(mxcluster_contact), which tells of a node that could not be asked at all.
    type: raw
    default: {}
  packed_plan:
    description: The plan of the job as C(mxcluster_plan) gives it, written to C(plan.json).
    type: str
    required: true
  restart:
    description: Whether RV(restart) is wanted, which looks for checkpoints beside O(run_dir) too.
    type: bool
    default: false
  collected:
    description:
      - The folder that holds a folder for each job, with C(<host>.tar) for each node, as C(mxcluster_node) with
        C(command=collect) packs it.
      - A node whose file is not there or cannot be used counts as failed; the files of the others are used.
      - That of this job is removed when the report is written, and so are old ones, of controllers that were killed while they
        collected.
    type: path
    required: true
  cache_dir:
    description: Where matplotlib may keep its list of fonts. Without it a temporary folder is used and removed.
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
      description: Whether every process exited with 0 and every worker of a program told that it was done.
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
      description: Worker 0's accuracy on held-out samples at the end, null if it told none.
      type: float
      returned: when not in check mode
    samples_per_s:
      description: Samples of all workers by the seconds of the one that took longest, null if they told none.
      type: float
      returned: when not in check mode
    seconds:
      description: How long the workers trained; of a failed job, how long it ran.
      type: float
      returned: when not in check mode
    exit_codes:
      description: The exit code of every process by name, negative for a signal, null if not known.
      type: dict
      returned: when not in check mode
    first_failure:
      description: The first cause, with its C(host), C(role), C(index), C(name), C(reason), C(exit_code), C(time) and
        the last lines of its C(log); null if the job is ok.
      type: dict
      returned: when not in check mode
    left:
      description: For each node on which somebody has looked, what was found to be left of the job, a text each.
      type: dict
      returned: when not in check mode
    warnings:
      description: What the person has to know besides, a text each.
      type: list
      elements: str
      returned: when not in check mode
    files:
      description: How many files that a script wrote were brought.
      type: int
      returned: when not in check mode
    nodes:
      description:
        - How the job ended on every node; C(done), C(failed), C(peer) (since another node's part had failed), C(lease),
          C(stopped), C(running) or C(missing).
      type: dict
      returned: when not in check mode
text:
  description: The verdict in lines for people.
  returned: success
  type: list
  elements: str
mxcluster_verdict_text:
  description: The same lines, under the name by which the callback C(mxcluster) shows them at the very end.
  returned: success
  type: list
  elements: str
restart:
  description: What the plan's knob C(max_restarts) comes to; C(text), C(delay) and C(extra), the knobs of the next attempt. The
    callback C(mxcluster) starts it. Null if it was not asked for.
  returned: when not in check mode
  type: dict
report:
  description: The path of report.html.
  returned: success
  type: str
"""

import os
import shutil
import time

from mxcluster import report, restarts, verdict
from mxcluster.controller_task import ControllerTask
from mxcluster.errors import BadInput
from mxcluster.plan import packed

REGISTERED = ("waits", "contacts")
OLD = 3600.0  # seconds after which no controller still brings the archives of a job


def forget(collected, job):
    """Remove the archives of the job, and those that controllers have left that were killed while they collected."""
    for name in os.listdir(collected) if os.path.isdir(collected) else []:
        folder = os.path.join(collected, name)
        try:
            newest = max(os.lstat(path).st_mtime for path in [folder] + [os.path.join(folder, one) for one in os.listdir(folder)])
        except OSError:  # another controller has removed it
            continue
        if name == job or time.time() - newest > OLD:
            shutil.rmtree(folder, ignore_errors=True)


def carry_out(given, check):
    """The verdict, and where the report is."""
    run_dir = os.path.abspath(given["run_dir"])
    page = os.path.join(run_dir, "report.html")
    if check:
        return {"changed": True, "verdict": {}, "text": [], "mxcluster_verdict_text": [], "report": page}
    plan, job = packed.unpack(given["packed_plan"])["plan"], os.path.basename(run_dir)
    archives = {host: os.path.join(given["collected"], job, host + ".tar") for host in plan["nodes"]}
    results = [given[name] for name in ("waits", "contacts")]
    answers = {host: report.heard(*(of_all.get(host) for of_all in results)) for host in plan["nodes"]}
    try:
        found = report.assemble(run_dir, archives, plan, given["cache_dir"], answers)
    except ImportError as error:
        raise BadInput("the report needs jinja2 and matplotlib (%s). On the controller: make venv" % error)
    except OSError as error:
        raise BadInput("the report of %s could not be written: %s" % (run_dir, error))
    forget(given["collected"], job)
    lines = verdict.text(found, given["run_dir"])
    restart = restarts.after(plan, found, run_dir) if given["restart"] else None
    return {"changed": True, "verdict": found, "text": lines, "mxcluster_verdict_text": lines, "report": page,
            "restart": restart}


class ActionModule(ControllerTask):
    """What Ansible looks for."""
