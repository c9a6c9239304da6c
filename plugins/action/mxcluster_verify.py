"""Judge a cluster on the controller with `mxcluster.cluster.verify`."""

DOCUMENTATION = r"""
---
module: mxcluster_verify
short_description: Judge a cluster by the check results of all nodes
description:
  - Compares the check results of the nodes with each other and with the plan, and writes one
    verdict as JSON.
  - The module also succeeds if a check failed. RV(verdict) has the result of each check.
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
    description: The result RV(mxcluster_plan#module:packed_plan) of the rendezvous job.
    type: str
    required: true
  answers_dir:
    description: The folder with a file C(<host>.json) for each node, the result of
      M(mxcluster_node) with V(command=check).
    type: path
    required: true
  archives_dir:
    description: The folder with a file C(<host>.tar) for each node, the result of the rendezvous on
      this node. The module reports a missing file as a missing result.
    type: path
    required: true
  wanted:
    description: The requirements for the cluster in the form of C(mxcluster.cluster.verify.judge).
      But C(files) has the planned contents instead of digests, and the module takes C(nodes) from
      O(packed_plan).
    type: dict
    required: true
  path:
    description: The file on the controller for the verdict.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Report the verdict on the cluster
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
  description: The verdict, which is also the content of the file O(path).
  returned: success
  type: dict
mxcluster_verdict_text:
  description: The verdict as lines of text. The callback C(mxcluster) shows these lines after the
    recap.
  returned: success
  type: list
  elements: str
mxcluster_exit_status:
  description: The exit status of ansible-playbook, which is 0 if all checks passed, 1 if a check
    failed, and 2 if a node did not answer.
  returned: success
  type: int
"""

import hashlib
import json
import os
import tarfile
from typing import Any, Dict, Optional

from mxcluster.ansible.controller_task import ControllerTask
from mxcluster.cluster import verify
from mxcluster.errors import DAMAGED, BadInput
from mxcluster.file_io import replace
from mxcluster.job import replies
from mxcluster.job.plan import packed
from mxcluster.model import shapes

Json = Dict[str, Any]

MOST = 16 << 20  # maximum number of bytes that `meeting` reads of a rendezvous result


def answer(folder: str, host: str) -> Optional[Json]:
    """Return the JSON value of the file <host>.json in `folder`, or None without a valid file."""
    try:
        with open(os.path.join(folder, host + ".json")) as source:
            return json.load(source)
    except (OSError,) + DAMAGED:
        return None


def meeting(host: str, path: str) -> Optional[Json]:
    """Return the result of the rendezvous on `host` from meeting.json in the archive `path`.

    Returns {"error": reason} if the host's agent ended before the rendezvous, or if the content is
    invalid. Returns None for an unreadable archive.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            names = archive.getnames()
            found = json.loads(
                archive.extractfile("meeting.json" if "meeting.json" in names else "status.json")
                .read(MOST)
                .decode("utf-8")
            )
    except (OSError, tarfile.TarError) + DAMAGED:
        return None
    try:
        if "meeting.json" in names:
            return replies.meeting(host, found)
        ended = replies.of_host(host, replies.status(found))
    except (BadInput, shapes.Wrong) as error:
        return {"error": str(error)}
    failure = ended["first_failure"] or {"reason": "ended: %s" % ended.get("reason"), "log": []}
    return {"error": "; ".join([failure["reason"]] + failure["log"][-3:])}


def carry_out(given: Json, check: bool) -> Json:
    """Write the verdict to the file given["path"], and return the dict that RETURN describes.

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
