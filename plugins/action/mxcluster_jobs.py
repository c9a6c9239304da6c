"""Doorway to mxcluster.jobs on the controller."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_jobs
short_description: Make sense of what the nodes answer about their jobs
description:
  - Puts the answers of the nodes together, finds the job that is meant, and says what has become of it.
  - Nothing is written but O(path).
author:
  - The mxcluster authors
options:
  command:
    description:
      - V(status) tells of all jobs, V(choose) finds the one that is meant, V(adopt) takes its plan from its nodes.
      - V(choose_to_stop) finds the jobs to end, which O(job) or O(all) names.
      - V(logs), V(stopped) and V(detached) say for people what has been found, ended or started.
    type: str
    required: true
    choices: [status, choose, choose_to_stop, adopt, logs, stopped, detached]
  answers:
    description: For each node the result of M(mxcluster_node) with V(command=jobs), an empty dict for one that gave none.
    type: dict
    default: {}
  job:
    description: The job's id; empty for the one that runs.
    type: str
    default: ""
  without:
    description: For V(adopt), the nodes whose plan does not count.
    type: list
    elements: str
    default: []
  all:
    description: For V(choose_to_stop), whether all running jobs are meant.
    type: bool
    default: false
  stopping:
    description: For V(stopped), the ids of the jobs that V(choose_to_stop) has found.
    type: list
    elements: str
    default: []
  results:
    description: For V(logs), V(adopt) and V(stopped), the result of each node. For V(stopped) that of a loop over job ids.
    type: dict
    default: {}
  inventory:
    description: For V(detached), what a person gives with C(-i); empty for the default.
    type: str
    default: ""
  json:
    description: For V(status), whether RV(mxcluster_verdict_text) is one line of JSON.
    type: bool
    default: false
  path:
    description: For V(status), where the JSON is written too.
    type: path
"""

EXAMPLES = r"""
- name: Find the job
  mxcluster_jobs:
    command: choose
    job: 20261121-101500-dist_sync
    answers: {node1: {jobs: []}}
  run_once: true
"""

RETURN = r"""
jobs:
  description: All jobs, see C(mxcluster.jobs.merge).
  returned: command is status
  type: list
  elements: dict
job:
  description: The job that is meant, null if none is named and none runs.
  returned: command is choose or logs
  type: dict
stopping:
  description: The ids of the jobs to end.
  returned: command is choose_to_stop
  type: list
  elements: str
parts:
  description: The ids of the jobs that are meant and have a part on a node, by host.
  returned: command is choose or choose_to_stop
  type: dict
asked:
  description: The nodes of the job that have answered.
  returned: command is adopt
  type: list
  elements: str
packed_plan:
  description:
    - The plan with this controller's own paths, which are empty for a node that has not answered; and RV(ignore:job),
      RV(ignore:options), RV(ignore:nodes) and RV(ignore:trainers), all as C(mxcluster_plan) returns them.
  returned: command is adopt
  type: str
ok:
  description: Whether nothing of the job is left.
  returned: command is stopped
  type: bool
mxcluster_verdict_text:
  description: What the callback C(mxcluster) shows at the very end.
  returned: command is status, logs, stopped or detached
  type: list
  elements: str
"""

import os

from mxcluster import jobs
from mxcluster.controller_task import ControllerTask
from mxcluster.plan import packed


def write(path, text):
    """Replace a file as a whole."""
    with open(path + ".part", "w") as target:
        target.write(text + "\n")
    os.rename(path + ".part", path)


def carry_out(given, check):
    """The result of one command."""
    answers = {host: answer if isinstance((answer or {}).get("jobs"), list) else None
               for host, answer in given["answers"].items()}
    results = {host: None if not answer or any(answer.get(name) for name in ("failed", "skipped", "unreachable")) else answer
               for host, answer in given["results"].items()}
    found = jobs.merge(answers)
    lost = [host for host, answer in answers.items() if answer is None]
    if given["command"] == "status":
        as_json = jobs.as_json(found, lost)
        if given["path"]:
            write(os.path.abspath(given["path"]), as_json)
        return {"jobs": found, "mxcluster_verdict_text": [as_json] if given["json"] else jobs.table(found)
                + ["not asked %s" % host for host in sorted(lost)]}
    if given["command"] == "detached":
        return {"mxcluster_verdict_text": jobs.told_of_detached(given["job"], given["inventory"])}
    if given["command"] == "adopt":
        asked = {host: answer["asked"] if answer is not None else None for host, answer in answers.items()}
        plans = {host: answer["plan"] for host, answer in results.items() if answer and host not in given["without"]}
        plan = jobs.adopt(jobs.agreed(plans, given["job"]), given["job"], asked)
        return dict(packed.told(plan, {}), asked=[host for host in plan["nodes"] if asked[host]])
    if given["command"] == "choose_to_stop":
        chosen = jobs.choose_to_stop(found, given["job"], given["all"])
        return {"stopping": [job["job"] for job in chosen], "parts": jobs.parts(chosen)}
    if given["command"] == "stopped":
        stopped = {}
        for host, answer in given["results"].items():
            for part in (answer or {}).get("results", []):
                ended = None if part.get("failed") or part.get("unreachable") else part
                stopped.setdefault(part["item"], {})[host] = ended
        told = jobs.told_of_stops([job for job in found if job["job"] in given["stopping"]], stopped, check)
        return {"ok": told["ok"], "mxcluster_verdict_text": told["text"]}
    job = jobs.choose(found, given["job"])
    if given["command"] == "choose":
        return {"job": job, "parts": jobs.parts([job] if job else [])}
    logs = {host: answer["logs"] for host, answer in results.items() if answer}
    return {"job": job, "mxcluster_verdict_text": jobs.told_of_logs(given["job"] or (job or {}).get("job"), logs)}


class ActionModule(ControllerTask):
    """What Ansible looks for."""
