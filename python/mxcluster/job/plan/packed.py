"""Pack a plan into one string for Ansible, and unpack the string for a module.

If a task names a dict, Ansible walks through all values of the dict once for each host. The plan
grows with the number of nodes. With the plan as a dict, the time of the controller would grow with
the square of the number of nodes.
"""

import base64
import functools
import json
import posixpath
import re
import zlib
from typing import Dict, List, Mapping, Sequence

from mxcluster.environment import CPUS
from mxcluster.job.plan import for_node, rounds
from mxcluster.launchers import LAUNCHERS
from mxcluster.model.job_knobs import Options, of_plan
from mxcluster.model.node_requests import LookRequest
from mxcluster.model.plan import MOST, WORKER, Node, Plan
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import each, table, text

THREADS = re.compile("%s$|(OMP|GOMP|KMP|MKL|OPENBLAS)_" % CPUS)
Arguments = Dict[str, object]  # of a task, as Ansible gives them: the codec has not read them


class Packed(Record):
    """The content of a packed plan."""

    plan: Plan = field(record(Plan))
    looks: Mapping[str, LookRequest] = field(table(text, record(LookRequest), MOST), default={})
    """{host: the job's needs there}."""


class Summary(Record):
    """A plan for Ansible's tasks."""

    job: str = field(text)
    options: Options = field(of_plan)
    """The effective values of all options."""
    nodes: Sequence[str] = field(each(text, MOST))
    """The hosts that run a process of the job."""
    start: str = field(text)
    """The file of train_job's tasks that starts the agents."""
    trainers: Sequence[str] = field(each(text, MOST))
    """The hosts that run workers."""
    packed_plan: str = field(text)
    """The plan and the needs of the job on each node, for `unpack`."""


def summary(plan: Plan, looks: Mapping[str, LookRequest]) -> Summary:
    """Return a plan for Ansible's tasks. Args: `looks` {host: the job's needs there}."""
    content = Packed(plan=plan, looks=looks).encode()
    packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 1)
    return Summary(
        job=plan.job,
        options=plan.options,
        nodes=list(plan.nodes),
        start=LAUNCHERS[plan.launcher].tasks,
        trainers=sorted({process.host for process in plan.of_role(WORKER)}),
        packed_plan=base64.b64encode(packed).decode(),
    )


@functools.lru_cache(maxsize=1)  # each poll of a wait unpacks the same string
def unpack(text: str) -> Packed:
    """Return the content of `text`, the value "packed_plan" of `summary`.

    Calls with the same string return the same object, so callers must not change the result.
    """
    return Packed.decode(json.loads(zlib.decompress(base64.b64decode(text)).decode()))


@functools.lru_cache(maxsize=1)
def _plan_json(text: str) -> object:
    """Return the plan in `text` as JSON. See `unpack`."""
    return unpack(text).plan.encode()


def completed(arguments: Arguments, host: str) -> Arguments:
    """Return the arguments of the module mxcluster_node for `host`, completed from "packed_plan".

    Args: `arguments` of the task. Without "packed_plan", the function returns these.
    """
    packed = arguments.get("packed_plan")
    if not packed:
        return arguments
    known = unpack(str(packed))
    plan, command = known.plan, arguments["command"]
    found = {name: value for name, value in arguments.items() if name != "packed_plan"}
    if command == "look":
        found["request"] = known.looks[host].encode()
        problems = arguments.get("problems")
        if isinstance(problems, list):
            place = str(arguments["python"]), str(arguments.get("job_dir"))
            found["problems"] = problems + moved(plan.nodes[host], *place)
    elif command == "check":
        cuda, request = plan.nodes[host].cuda, arguments["request"]
        if isinstance(request, dict):
            request = dict(request, cuda=cuda.encode() if cuda else {})
            if isinstance(request.get("speed"), dict):
                request["speed"] = dict(request["speed"], variables=threads_of(plan, host))
            found["request"] = request
    elif command in ("start", "prepare"):
        part = for_node(plan, host)
        part = part.replaced(processes=[]) if arguments["only_meet"] else part.replaced(whole=plan)
        if arguments.get("transfers") and part.rendezvous:
            own = rounds.partners(sorted(plan.nodes), host)
            part = part.replaced(rendezvous=part.rendezvous.replaced(partners=own))
        found["plan"] = part.encode()
    elif command == "wait":
        found["together"] = plan.together
        # For the collection of the files.
        found["request"] = {"engine": LAUNCHERS[plan.launcher].engine}
        checkpoints = arguments.get("checkpoints")
        if isinstance(checkpoints, dict):
            found["checkpoints"] = dict(checkpoints, plan=_plan_json(str(packed)))
    return found


def threads_of(plan: Plan, host: str) -> Dict[str, str]:
    """Return the variables that set the CPUs and threads of a worker on `host`.

    A host without workers has the variables of its first process.
    """
    one = max(plan.of_host(host), key=lambda process: process.role == WORKER)
    return {name: text for name, text in one.env.items() if THREADS.match(name)}


def moved(node: Node, python: str, job_dir: str) -> List[str]:
    """Return [problem] if the plan and the role name different paths on the node, else [].

    Root runs the Python and removes the job folder at these paths. A program on a node may have
    changed the paths in a record or a plan, so the controller trusts only the paths of the role.

    Args: `node` of the plan; `python` and `job_dir` of the role.
    """
    if (node.python, node.job_dir) == (python, job_dir):
        return []
    return [
        "provision.yml has put Python at %s and the jobs in %s, but mxcluster_env_dir and "
        "mxcluster_job_dir now name other folders: run provision.yml again"
        % (node.python, posixpath.dirname(node.job_dir))
    ]
