"""Judge a cluster on the controller, with `mxcluster.cluster.verify`."""

DOCUMENTATION = r"""
---
module: mxcluster_verify
short_description: Judge a cluster by the check results of its nodes
description:
  - Compares the check results of the nodes with each other and with the plan, and writes one
    verdict as JSON.
  - This module does not fail if a check failed. RV(verdict) has the result of each check.
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
  packed_plan:
    description: The plan of the job that held the rendezvous, as C(mxcluster_plan) returns it.
    type: str
    required: true
  answers_dir:
    description: The folder with C(<host>.json), the results of M(mxcluster_node) with
      V(command=check).
    type: path
    required: true
  archives_dir:
    description: The folder with C(<host>.tar), each node's part of the rendezvous; a missing file
      counts as no result.
    type: path
    required: true
  wanted:
    description: The requirements of the cluster, see C(mxcluster.cluster.verify.judge). In place of
      digests, C(files) has the planned texts. C(nodes) comes from O(packed_plan).
    type: dict
    required: true
  path:
    description: The file for the verdict.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Judge the cluster
  mxcluster_verify:
    packed_plan: "{{ planned.packed_plan }}"
    answers_dir: .state/local/verify
    archives_dir: .state/local/collected/meeting
    wanted:
      files: {}
      ssh: true
      met: true
      max_clock_offset: 1
      min_disk_mb: 1024
      min_shm_mb: 32
      min_open_files: 1024
    path: .state/local/verify.json
"""

RETURN = r"""
verdict:
  description: The verdict, as in the file O(path).
  returned: success
  type: dict
mxcluster_verdict_text:
  description: The verdict as lines of text; the callback C(mxcluster) shows them after the recap.
  returned: success
  type: list
  elements: str
mxcluster_exit_status:
  description: 0 if all checks passed, 1 if a check failed, 2 if a node did not answer; the exit
    status of ansible-playbook.
  returned: success
  type: int
"""

import hashlib
import json
import os
import tarfile

from mxcluster import shapes
from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.cluster import verify
from mxcluster.errors import BadInput
from mxcluster.file_io import replace
from mxcluster.job import replies
from mxcluster.job.plan import packed

MOST = 16 << 20  # maximum number of bytes that are read of a rendezvous result


def answer(folder, host):
    """Return the parsed content of <host>.json in `folder`, None without a valid file."""
    try:
        with open(os.path.join(folder, host + ".json")) as source:
            return json.load(source)
    except (OSError, ValueError):
        return None


def meeting(host, path):
    """Return the content of meeting.json in the archive `path`, the result of a node's rendezvous.

    Returns {"error": reason} if the agent of `host` ended before the rendezvous or the content is
    invalid, None without a readable archive.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            names = archive.getnames()
            found = json.loads(
                archive.extractfile("meeting.json" if "meeting.json" in names else "status.json")
                .read(MOST)
                .decode("utf-8")
            )
    except (OSError, KeyError, ValueError, AttributeError, RecursionError, tarfile.TarError):
        return None
    try:
        if "meeting.json" in names:
            return replies.meeting(host, found)
        ended = replies.of_host(host, replies.status(found))
    except (BadInput, shapes.Wrong) as error:
        return {"error": str(error)}
    failure = ended["first_failure"] or {"reason": "ended: %s" % ended.get("reason"), "log": []}
    return {"error": "; ".join([failure["reason"]] + failure["log"][-3:])}


def carry_out(given, check):
    """Write the verdict on the cluster to given["path"], and return the values of RETURN.

    Args: `given` the arguments of the task; `check` has no effect.
    """
    nodes = packed.unpack(given["packed_plan"])["plan"]["nodes"]
    wanted = dict(given["wanted"], nodes=nodes)
    wanted["files"] = {
        name: hashlib.sha256(text.encode("utf-8")).hexdigest()
        for name, text in wanted["files"].items()
    }
    for name in ("max_clock_offset", "min_disk_mb", "min_shm_mb", "min_open_files"):
        wanted[name] = float(wanted[name])
    verdict = verify.judge(
        {host: answer(given["answers_dir"], host) for host in nodes},
        {host: meeting(host, os.path.join(given["archives_dir"], host + ".tar")) for host in nodes},
        wanted,
    )
    replace(os.path.abspath(given["path"]), json.dumps(verdict, indent=1))
    return {
        "changed": True,
        "verdict": verdict,
        "mxcluster_verdict_text": verify.text(verdict, given["path"]),
        "mxcluster_exit_status": verdict["status"],
    }


class ActionModule(ControllerTask):
    """The action plugin of `mxcluster_verify`, which Ansible runs on the controller."""
