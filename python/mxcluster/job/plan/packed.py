"""A plan on its way through Ansible, as one text.

Ansible looks at every value of a dict whenever a task names it, for each host: with the plan in a variable, a job of 100 nodes
cost the controller a hundred times as much for each of them as one of one node.
"""
import base64
import functools
import json
import posixpath
import zlib
from typing import Any, Dict, List

from . import for_node

Json = Dict[str, Any]


def told(plan: Json, looks: Json) -> Json:
    """The small parts of a plan, which tasks may name, and "packed_plan": the plan and the looks as one text for `unpack`.

    "job", "options", "nodes": the hosts, "trainers": those that run workers.
    """
    text = json.dumps({"plan": plan, "looks": looks}, separators=(",", ":"))
    return {"job": plan["job"], "options": plan["options"], "nodes": list(plan["nodes"]),
            "trainers": sorted({process["host"] for process in plan["processes"] if process["role"] == "worker"}),
            "packed_plan": base64.b64encode(zlib.compress(text.encode(), 1)).decode()}


@functools.lru_cache(maxsize=1)  # a wait asks for it in each of its polls
def unpack(text: str) -> Json:
    """{"plan", "looks"} of `told`. Do not change the result: later calls return the same object."""
    return json.loads(zlib.decompress(base64.b64decode(text)).decode())


def completed(asked: Json, host: str) -> Json:
    """The arguments of mxcluster_node with what its "packed_plan" says of the host; without that, they are as they were."""
    if not asked.get("packed_plan"):
        return asked
    known = unpack(asked["packed_plan"])
    plan, found = known["plan"], {name: value for name, value in asked.items() if name != "packed_plan"}
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
    """A line if the plan has other paths for the node than the role, [] if not. Only the role's paths count: root runs the
    interpreter and removes the folder, and a record or a plan may have been written on a node."""
    if (node["python"], node["job_dir"]) == (asked["python"], asked.get("job_dir")):
        return []
    return ["the node was provisioned with its environment at %s and its jobs at %s, and mxcluster_env_dir and mxcluster_job_dir "
            "say otherwise: run provision.yml" % (node["python"], posixpath.dirname(node["job_dir"]))]
