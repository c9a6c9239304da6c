"""Doorway to mxcluster.verify on the controller."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: mxcluster_verify
short_description: Judge a cluster from what its nodes have answered
description:
  - Compares the answers of the nodes with each other and with the plan, and writes one verdict as JSON.
  - A cluster that is not well does not make this module fail; look at RV(verdict).
author:
  - The mxcluster authors
options:
  packed_plan:
    description: The plan of the meeting as C(mxcluster_plan) gives it.
    type: str
    required: true
  answers_dir:
    description: The folder with C(<host>.json), what M(mxcluster_node) with V(command=check) has returned.
    type: path
    required: true
  archives_dir:
    description: The folder with C(<host>.tar), each node's part of the meeting; one that is not there counts as none.
    type: path
    required: true
  wanted:
    description: What the cluster shall be like, see C(mxcluster.verify.judge); C(files) are the texts as planned. C(nodes) is
      that of O(packed_plan).
    type: dict
    required: true
  path:
    description: Where the verdict is written.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Judge
  mxcluster_verify:
    packed_plan: "{{ planned.packed_plan }}"
    answers_dir: .state/local/verify
    archives_dir: .state/local/collected/meeting
    wanted: {files: {}, ssh: true, max_clock_offset: 1, min_disk_mb: 1024, min_shm_mb: 32, min_open_files: 1024}
    path: .state/local/verify.json
"""

RETURN = r"""
verdict:
  description: The content of the file.
  returned: success
  type: dict
mxcluster_verdict_text:
  description: The verdict in lines for people, which the callback C(mxcluster) shows at the very end.
  returned: success
  type: list
  elements: str
mxcluster_exit_status:
  description: 0 if all is well, 1 if a check failed, 2 if a node did not answer; the exit status of ansible-playbook.
  returned: success
  type: int
"""

import hashlib
import json
import os
import tarfile

from mxcluster import replies, shapes, verify
from mxcluster.controller_task import ControllerTask
from mxcluster.errors import BadInput
from mxcluster.plan import packed

MOST = 16 << 20  # bytes of an answer that are read


def answer(folder, host):
    """What a node has answered, None if it has not."""
    try:
        with open(os.path.join(folder, host + ".json")) as source:
            return json.load(source)
    except (OSError, ValueError):
        return None


def meeting(host, path):
    """meeting.json of a node's archive; {"error": why} if its agent ended before or it makes no sense; None if there is nothing
    at all."""
    try:
        with tarfile.open(path, "r:") as archive:
            names = archive.getnames()
            found = json.loads(archive.extractfile(
                "meeting.json" if "meeting.json" in names else "status.json").read(MOST).decode("utf-8"))
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
    """The verdict, which is written to O(path) too."""
    nodes = packed.unpack(given["packed_plan"])["plan"]["nodes"]
    wanted = dict(given["wanted"], nodes=nodes)
    wanted["files"] = {name: hashlib.sha256(text.encode("utf-8")).hexdigest() for name, text in wanted["files"].items()}
    for name in ("max_clock_offset", "min_disk_mb", "min_shm_mb", "min_open_files"):
        wanted[name] = float(wanted[name])
    verdict = verify.judge({host: answer(given["answers_dir"], host) for host in nodes},
                           {host: meeting(host, os.path.join(given["archives_dir"], host + ".tar")) for host in nodes}, wanted)
    path = os.path.abspath(given["path"])
    with open(path + ".part", "w") as target:
        json.dump(verdict, target, indent=1)
    os.rename(path + ".part", path)
    return {"changed": True, "verdict": verdict, "mxcluster_verdict_text": verify.text(verdict, given["path"]),
            "mxcluster_exit_status": verdict["status"]}


class ActionModule(ControllerTask):
    """What Ansible looks for."""
