"""Merge the job lists of the nodes and select jobs, on the controller."""

DOCUMENTATION = r"""
---
module: mxcluster_jobs
short_description: Merge the job lists of the nodes
description:
  - Merges the job lists of the nodes into one list. Depending on O(command), the module returns
    this list, selects jobs, or returns lines for the user.
  - The module writes only the file O(path).
attributes:
  check_mode:
    description: In check mode the module changes nothing and reports the change that it would make.
    support: partial
    details: The module writes O(path) in check mode too.
  diff_mode:
    description: With C(--diff) the module returns the contents before and after a change.
    support: none
author:
  - The mxcluster authors
options:
  command:
    description:
      - V(status) lists all jobs. V(choose) selects the job O(job). V(adopt) returns the plan of
        O(job) from the copies on the nodes.
      - V(choose_to_stop) selects the jobs to stop by O(job) or O(all).
      - V(logs), V(stopped) and V(detached) return lines for the user about logs, stopped jobs or a
        detached job.
    type: str
    required: true
    choices: [status, choose, choose_to_stop, adopt, logs, stopped, detached]
  answers:
    description: The result of M(mxcluster_node) with V(command=jobs) of each node, by host. A node
      without a result has an empty dict.
    type: dict
    default: {}
  job:
    description: The id of the job. An empty id selects the only running job.
    type: str
    default: ""
  without:
    description: For V(adopt), the nodes whose copies of the plan the module ignores.
    type: list
    elements: str
    default: []
  all:
    description: For V(choose_to_stop), whether to select all running and prepared jobs.
    type: bool
    default: false
  stopping:
    description: For V(stopped), the ids of the jobs that V(choose_to_stop) has returned.
    type: list
    elements: str
    default: []
  results:
    description: For V(logs), V(adopt) and V(stopped), the result of M(mxcluster_node) of each node,
      by host. For V(stopped), each result is the result of a loop over job ids.
    type: dict
    default: {}
  inventory:
    description: For V(detached), the argument of C(-i), or empty for the default inventory.
    type: str
    default: ""
  json:
    description: For V(status), whether RV(mxcluster_verdict_text) is one line of JSON.
    type: bool
    default: false
  path:
    description: For V(status), the file into which the module writes the JSON.
    type: path
  records_dir:
    description: For V(status), the folder of the node records. A record tells if the driver of its
      node needs a restart. For V(adopt), the state folder of the controller has this folder.
    type: path
  runs_dir:
    description: For V(adopt), the folder of the runs. The module refuses a folder in which the
      controller cannot write.
    type: raw
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
  description: All jobs in the form of C(mxcluster.job.listing.merge).
  returned: command is status
  type: list
  elements: dict
job:
  description: The selected job, or null if O(job) is empty and no job runs.
  returned: command is choose or logs
  type: dict
stopping:
  description: The ids of the jobs to stop.
  returned: command is choose_to_stop
  type: list
  elements: str
parts:
  description: For each host, the ids of the selected jobs that have a part on this host.
  returned: command is choose or choose_to_stop
  type: dict
asked:
  description: The nodes of the job that have returned a job list.
  returned: command is adopt
  type: list
  elements: str
packed_plan:
  description:
    - The plan in the form of RV(mxcluster_plan#module:packed_plan), with the paths of this
      controller. A node without a job list has empty paths.
    - The result also has RV(ignore:job), RV(ignore:options), RV(ignore:nodes) and
      RV(ignore:trainers) in the form of C(mxcluster_plan).
  returned: command is adopt
  type: str
ok:
  description: Whether all nodes of the jobs have answered and have no leftovers.
  returned: command is stopped
  type: bool
mxcluster_verdict_text:
  description: The lines that the callback C(mxcluster) shows after the recap.
  returned: command is status, logs, stopped or detached
  type: list
  elements: str
"""

import os
from typing import Any, Dict, Iterable, Optional

from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.cluster import driver, node_records
from mxcluster.file_io import replace
from mxcluster.job import listing
from mxcluster.job.plan import packed
from mxcluster.job.plan.inputs import results_folder

Json = Dict[str, Any]

REQUIRED_IF = [("command", "adopt", ["records_dir", "runs_dir"])]


def restarts(folder: Optional[str], hosts: Iterable[str]) -> Dict[str, str]:
    """Return {host: the reason of the restart that its driver needs}, from the node records.

    A damaged record gives no reason; train.yml refuses such a record.

    Args: `folder` the folder of the node records; `hosts` of the inventory.
    """
    records = node_records.read(folder) if folder else {}
    return driver.restarts({host: records[host] for host in hosts if host in records})


def carry_out(given: Json, check: bool) -> Json:
    """Run given["command"] and return the dict that RETURN describes.

    The command "status" also writes the jobs to the file given["path"].

    Args: `given` the arguments of the task; `check` True in check mode. The report of the command
    "stopped" then describes a dry run.

    Raises:
        BadInput: The named job does not exist, a required job's name is missing, or the nodes'
            plans are missing, invalid or different.
    """
    answers = {
        host: answer if isinstance((answer or {}).get("jobs"), list) else None
        for host, answer in given["answers"].items()
    }
    results = {
        host: None
        if not answer or any(answer.get(name) for name in ("failed", "skipped", "unreachable"))
        else answer
        for host, answer in given["results"].items()
    }
    found = listing.merge(answers)
    lost = [host for host, answer in answers.items() if answer is None]
    if given["command"] == "status":
        waiting = restarts(given["records_dir"], answers)
        as_json = listing.as_json(found, lost, waiting)
        if given["path"]:
            replace(os.path.abspath(given["path"]), as_json + "\n")
        return {
            "jobs": found,
            "mxcluster_verdict_text": [as_json]
            if given["json"]
            else listing.table(found)
            + [
                "no answer from %s: check this node, then run status.yml again" % host
                for host in sorted(lost)
            ]
            + ["restart needed %s: %s" % (host, why) for host, why in waiting.items()],
        }
    if given["command"] == "detached":
        return {
            "mxcluster_verdict_text": listing.told_of_detached(given["job"], given["inventory"])
        }
    if given["command"] == "adopt":
        state_dir = os.path.dirname(os.path.abspath(given["records_dir"]))
        results_folder(given["runs_dir"], state_dir, given["job"])
        asked = {
            host: answer["asked"] if answer is not None else None
            for host, answer in answers.items()
        }
        plans = {
            host: answer["plan"]
            for host, answer in results.items()
            if answer and host not in given["without"]
        }
        plan = listing.adopt(listing.agreed(plans, given["job"]), given["job"], asked)
        return dict(packed.told(plan, {}), asked=[host for host in plan["nodes"] if asked[host]])
    if given["command"] == "choose_to_stop":
        chosen = listing.choose_to_stop(found, given["job"], given["all"], lost)
        return {"stopping": [job["job"] for job in chosen], "parts": listing.parts(chosen)}
    if given["command"] == "stopped":
        stopped: Dict[str, Dict[str, Optional[Json]]] = {}
        for host, answer in given["results"].items():
            for part in (answer or {}).get("results", []):
                ended = None if part.get("failed") or part.get("unreachable") else part
                stopped.setdefault(part["item"], {})[host] = ended
        told = listing.told_of_stops(
            [job for job in found if job["job"] in given["stopping"]], stopped, check
        )
        return {"ok": told["ok"], "mxcluster_verdict_text": told["text"]}
    job = listing.choose(found, given["job"], lost)
    if given["command"] == "choose":
        return {"job": job, "parts": listing.parts([job] if job else [])}
    logs = {host: answer["logs"] for host, answer in results.items() if answer}
    return {
        "job": job,
        "mxcluster_verdict_text": listing.told_of_logs(
            given["job"] or (job or {}).get("job"), logs
        ),
    }


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_jobs`, which Ansible runs on the controller."""
