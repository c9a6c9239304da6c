"""Pack a plan into one string for Ansible, and unpack the string for a module.

If a task names a dict, Ansible walks through all values of the dict once for each host. The plan
grows with the number of nodes. With the plan as a dict, the time of the controller would grow with
the square of the number of nodes.
"""

import base64
import functools
import json
import posixpath
import zlib
from typing import Any, Dict, List

from mxcluster.job import launchers
from mxcluster.job.plan import as_json, for_node

Json = Dict[str, Any]


def told(plan: Json, looks: Json) -> Json:
    """Return {"job", "options", "nodes", "trainers", "packed_plan"} of a plan, for Ansible's tasks.

    "nodes" lists all hosts of the job, and "trainers" lists the hosts with workers. "start" is the
    name of the task file that starts the agents. "packed_plan" is a string with `plan` and `looks`,
    for `unpack`.

    Args: `looks` {host: request for `mxcluster.node.probe.look`}.
    """
    text = json.dumps({"plan": as_json(plan), "looks": looks}, separators=(",", ":"))
    return {
        "job": plan["job"],
        "options": plan["options"].encode(),
        "nodes": list(plan["nodes"]),
        "start": launchers.of(plan).tasks,
        "trainers": sorted(
            {process["host"] for process in plan["processes"] if process["role"] == "worker"}
        ),
        "packed_plan": base64.b64encode(zlib.compress(text.encode(), 1)).decode(),
    }


@functools.lru_cache(maxsize=1)  # each poll of a wait unpacks the same string
def unpack(text: str) -> Json:
    """Return {"plan", "looks"} from `text`, the value "packed_plan" of `told`.

    Calls with the same string return the same object, so callers must not change the result.
    """
    told: Json = json.loads(zlib.decompress(base64.b64decode(text)).decode())
    return told


def completed(asked: Json, host: str) -> Json:
    """Return the arguments of the module mxcluster_node for `host`, completed from "packed_plan".

    Args: `asked` the arguments of the task. Without "packed_plan", the function returns `asked`.
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
    elif asked["command"] in ("start", "prepare"):
        part = for_node(plan, host)
        found["plan"] = dict(part, processes=[]) if asked["only_meet"] else dict(part, whole=plan)
    elif asked["command"] == "wait":
        found["together"] = plan.get("together") or []
        found["request"] = {"engine": launchers.of(plan).engine}  # for the collection of the files
        if asked.get("checkpoints"):
            found["checkpoints"] = dict(asked["checkpoints"], plan=plan)
    return found


def moved(node: Json, asked: Json) -> List[str]:
    """Return [problem] if the plan and the role name different paths on the node, else [].

    Root runs the Python and removes the job folder at these paths. A program on a node may have
    changed the paths in a record or a plan, so the controller trusts only the paths of the role.

    Args: `node` the node's entry in the plan; `asked` the arguments of mxcluster_node.
    """
    if (node["python"], node["job_dir"]) == (asked["python"], asked.get("job_dir")):
        return []
    return [
        "provision.yml has put Python at %s and the jobs in %s, but mxcluster_env_dir and "
        "mxcluster_job_dir now name other folders: run provision.yml again"
        % (node["python"], posixpath.dirname(node["job_dir"]))
    ]
