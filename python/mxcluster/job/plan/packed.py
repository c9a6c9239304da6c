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
from typing import Any, Dict, List, Mapping

from mxcluster.job.plan import for_node
from mxcluster.launchers import LAUNCHERS
from mxcluster.model.node_requests import LookRequest
from mxcluster.model.plan import WORKER, Node, Plan
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import table, text

Json = Dict[str, Any]


class Packed(Record):
    """The content of a packed plan."""

    plan: Plan = field(record(Plan))
    looks: Mapping[str, LookRequest] = field(table(text, record(LookRequest), 100000), default={})
    """{host: the job's needs there}."""


def summary(plan: Plan, looks: Mapping[str, LookRequest]) -> Json:
    """Return {"job", "options", "nodes", "trainers", "packed_plan"} of a plan, for Ansible's tasks.

    "nodes" lists all hosts of the job, and "trainers" lists the hosts with workers. "start" is the
    name of the task file that starts the agents. "packed_plan" is a string with `plan` and `looks`,
    for `unpack`.

    Args: `looks` {host: the job's needs there}.
    """
    content = Packed(plan=plan, looks=looks).encode()
    packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 1)
    return {
        "job": plan.job,
        "options": plan.options.encode(),
        "nodes": list(plan.nodes),
        "start": LAUNCHERS[plan.launcher].tasks,
        "trainers": sorted({process.host for process in plan.of_role(WORKER)}),
        "packed_plan": base64.b64encode(packed).decode(),
    }


@functools.lru_cache(maxsize=1)  # each poll of a wait unpacks the same string
def unpack(text: str) -> Packed:
    """Return the content of `text`, the value "packed_plan" of `summary`.

    Calls with the same string return the same object, so callers must not change the result.
    """
    return Packed.decode(json.loads(zlib.decompress(base64.b64decode(text)).decode()))


@functools.lru_cache(maxsize=1)
def _plan_json(text: str) -> Json:
    """Return the plan in `text` as JSON. See `unpack`."""
    return unpack(text).plan.encode()


def completed(arguments: Json, host: str) -> Json:
    """Return the arguments of the module mxcluster_node for `host`, completed from "packed_plan".

    Args: `arguments` of the task. Without "packed_plan", the function returns these.
    """
    if not arguments.get("packed_plan"):
        return arguments
    known = unpack(arguments["packed_plan"])
    plan, command = known.plan, arguments["command"]
    found = {name: value for name, value in arguments.items() if name != "packed_plan"}
    if command == "look":
        found["request"] = known.looks[host].encode()
        if "problems" in arguments:
            found["problems"] = arguments["problems"] + moved(plan.nodes[host], arguments)
    elif command == "check":
        cuda = plan.nodes[host].cuda
        found["request"] = dict(arguments["request"], cuda=cuda.encode() if cuda else {})
    elif command in ("start", "prepare"):
        part = for_node(plan, host)
        part = part.replaced(processes=[]) if arguments["only_meet"] else part.replaced(whole=plan)
        found["plan"] = part.encode()
    elif command == "wait":
        found["together"] = plan.together
        found["request"] = {
            "engine": LAUNCHERS[plan.launcher].engine
        }  # for the collection of the files
        if arguments.get("checkpoints"):
            found["checkpoints"] = dict(
                arguments["checkpoints"], plan=_plan_json(arguments["packed_plan"])
            )
    return found


def moved(node: Node, arguments: Json) -> List[str]:
    """Return [problem] if the plan and the role name different paths on the node, else [].

    Root runs the Python and removes the job folder at these paths. A program on a node may have
    changed the paths in a record or a plan, so the controller trusts only the paths of the role.

    Args: `node` the node's entry in the plan; `arguments` of mxcluster_node.
    """
    if (node.python, node.job_dir) == (arguments["python"], arguments.get("job_dir")):
        return []
    return [
        "provision.yml has put Python at %s and the jobs in %s, but mxcluster_env_dir and "
        "mxcluster_job_dir now name other folders: run provision.yml again"
        % (node.python, posixpath.dirname(node.job_dir))
    ]
