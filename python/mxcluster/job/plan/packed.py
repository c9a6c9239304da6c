"""Pack a plan into one text, which Ansible passes to its tasks.

Whenever a task names a dict, Ansible walks through all values of the dict, once per host. With the
plan in a dict, a job of 100 nodes cost the controller a hundred times as much time per node as a
job of one node.
"""

import base64
import functools
import json
import posixpath
import zlib
from typing import Any, Dict, List

from mxcluster.job.plan import for_node

Json = Dict[str, Any]


def told(plan: Json, looks: Json) -> Json:
    """Return the small parts of a plan, for tasks, and "packed_plan", the text for `unpack`.

    The parts are "job", "options", "nodes" (all hosts) and "trainers" (the hosts with workers). The
    text holds the plan and the looks.
    """
    text = json.dumps({"plan": plan, "looks": looks}, separators=(",", ":"))
    return {
        "job": plan["job"],
        "options": plan["options"],
        "nodes": list(plan["nodes"]),
        "trainers": sorted(
            {process["host"] for process in plan["processes"] if process["role"] == "worker"}
        ),
        "packed_plan": base64.b64encode(zlib.compress(text.encode(), 1)).decode(),
    }


@functools.lru_cache(maxsize=1)  # each poll of a wait calls it
def unpack(text: str) -> Json:
    """Return {"plan", "looks"} from a "packed_plan" of `told`. Callers must not change the result.

    Later calls with the same text return the same object.
    """
    told: Json = json.loads(zlib.decompress(base64.b64decode(text)).decode())
    return told


def completed(asked: Json, host: str) -> Json:
    """Return the arguments `asked` of mxcluster_node, completed from "packed_plan" for `host`.

    Arguments without "packed_plan" are returned as they are.
    """
    if not asked.get("packed_plan"):
        return asked
    known = unpack(asked["packed_plan"])
    plan, found = (
        known["plan"],
        {name: value for name, value in asked.items() if name != "packed_plan"},
    )
    if asked["command"] == "look":
        found["request"] = known["looks"][host]
        if "problems" in asked:
            found["problems"] = asked["problems"] + moved(plan["nodes"][host], asked)
    elif asked["command"] == "check":
        found["request"] = dict(asked["request"], cuda=plan["nodes"][host].get("cuda") or {})
    elif asked["command"] == "start":
        part = for_node(plan, host)
        found["plan"] = dict(part, processes=[]) if asked["only_meet"] else dict(part, whole=plan)
    elif asked["command"] == "wait":
        found["together"] = plan.get("together") or []
        if asked.get("checkpoints"):
            found["checkpoints"] = dict(asked["checkpoints"], plan=plan)
    return found


def moved(node: Json, asked: Json) -> List[str]:
    """Return one problem if the plan's paths for the node differ from those of the role, else [].

    Only the paths of the role are trusted: root runs the interpreter and removes the folder, and a
    program on a node may have changed a record or a plan.

    Args: `node` the node's entry in the plan; `asked` the arguments of mxcluster_node.
    """
    if (node["python"], node["job_dir"]) == (asked["python"], asked.get("job_dir")):
        return []
    return [
        "the node was provisioned with its Python at %s and its jobs in %s, but mxcluster_env_dir "
        "and mxcluster_job_dir now name other folders: run provision.yml"
        % (node["python"], posixpath.dirname(node["job_dir"]))
    ]
