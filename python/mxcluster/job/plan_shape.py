"""Check a plan from the nodes or from a run folder. All functions are pure.

The training user can write to the copies of plan.json on the nodes, and a file in `runs/` can be
damaged. So every field that a controller reads later has a shape here. Other fields may have any
JSON of at most DEEPEST levels.
"""

from typing import Any, Dict, Iterator, List, Tuple

from mxcluster import schemes
from mxcluster.model import shapes
from mxcluster.model.job_knobs import of_plan
from mxcluster.model.names import is_job_id
from mxcluster.model.shapes import (
    LARGEST,
    each,
    fields,
    flag,
    number,
    one_of,
    optional,
    passing,
    real,
    table,
    text,
    whole,
)

Json = Dict[str, Any]

KIND = "mpi"  # the value of "kv" in the plan of an MPI program
DEEPEST = 12  # levels of a plan, about twice those of a real plan
MOST = 100000  # processes, workers, groups, arguments or variables of a plan

any_json = passing(
    object, lambda value: shapes.is_json(value, DEEPEST), "JSON of at most %d levels" % DEEPEST
)
_positive = real(5e-324, LARGEST)
_not_negative = real(0, LARGEST)
_fraction = real(0, 1)
_share = passing(list, lambda value: len(value) == 2, "a list of two numbers")
_indices = each(whole(), MOST)
# The name of one file or folder, not a path.
_file_name = passing(
    str,
    lambda value: value not in ("", ".", "..") and "/" not in value,
    "a name without /",
)
_host = _file_name

_process = fields(
    {
        "name": _file_name,
        "role": one_of("scheduler", "server", "worker", "mpirun", "node"),
        "index": optional(whole()),
        "host": _host,
        "address": shapes.ipv4,
        "port": optional(whole(1, 65535)),
        "gpus": each(whole()),
    },
    {
        "group": optional(whole()),
        "share": optional(lambda value: each(_fraction)(_share(value))),
        "work_load": each(_positive),
        "folder": optional(text),
        "command": each(text, MOST),
        "env": table(text, text, MOST),
    },
    any_json,
)
# A plan of which only the options count.
with_options = fields({"options": of_plan}, rest=any_json)
_profile = fields(
    {
        "job": text,
        "fits": flag,
        "uses": each(text),
        "noise": _not_negative,
        "speeds": each(_positive, MOST),
    },
    rest=any_json,
)
_plan = fields(
    {
        "schema": whole(1, 1),
        "job": passing(str, is_job_id, "the id of a job"),
        "kv": one_of(*(schemes.NAMES + (KIND,))),
        "nodes": table(_host, fields({}, {"build": any_json}, any_json), MOST),
        "processes": each(_process, MOST),
        "options": of_plan,
    },
    {
        "workers": whole(),
        "servers": whole(),
        "groups": each(_indices, MOST),
        "group_labels": each(text, MOST),
        "together": each(_indices, MOST),
        "slowdowns": each(number, MOST),
        "balance": optional(
            fields({"sizes": each(whole(1), MOST)}, rest=any_json),
        ),
        "heartbeat": optional(fields({"timeout": number}, rest=any_json)),
        "timeouts": optional(fields({"stall": number}, rest=any_json)),
        "profile": optional(_profile),
        "mpi": optional(fields({}, rest=any_json)),
    },
    any_json,
)


def of_run(value: Any) -> Json:
    """Check the plan `value` of a run folder, and return it as `checked` does.

    The plan of a batch job that has never had nodes is its submission, without processes.
    """
    if isinstance(value, dict) and value.get("batch") and value.get("processes") == []:
        submission: Json = _plan(any_json(value))
        return submission
    return checked(value)


def checked(value: Any) -> Json:
    """Check the plan `value`, and return it with the missing fields of an older plan.

    Raises shapes.Wrong if a field has another type than in a real plan, or if fields contradict
    each other.
    """
    plan: Json = _plan(any_json(value))
    processes = plan["processes"]
    workers = [one for one in processes if one["role"] == "worker"]
    plan = dict(
        {
            "workers": len(workers),
            "servers": sum(one["role"] == "server" for one in processes),
            "groups": [],
            "group_labels": [],
            "together": [],
        },
        **plan,
    )
    for place, what, is_met in _conditions(plan, processes, workers):
        if not is_met:
            raise shapes.Wrong(what, plan.get(place), "." + place)
    return plan


def _conditions(
    plan: Json, processes: List[Json], workers: List[Json]
) -> Iterator[Tuple[str, str, bool]]:
    """Yield (field, wanted value in words, True if met) of each condition on a plan's fields."""
    names = [one["name"] for one in processes]
    indices = [one["index"] for one in workers]
    groups, together = plan["groups"], plan["together"]
    yield (
        "processes",
        "a list with one process of each name, a role and an index",
        len(set(names)) == len(names) and all(one["name"] == _name(one) for one in processes),
    )
    yield (
        "processes",
        "a list with the workers 0, 1 and so on",
        set(indices) == set(range(len(indices))) and bool(indices or plan["kv"] == KIND),
    )
    yield (
        "nodes",
        "an object with the hosts of all processes",
        {one["host"] for one in processes} <= set(plan["nodes"]),
    )
    yield "groups", "a list of all workers' groups", _are_sets(groups, len(workers), bool(groups))
    yield "together", "a list of sets of workers", _are_sets(together, len(workers))
    yield (
        "groups",
        "a list with the groups of all processes",
        all(one.get("group") in range(len(groups)) for one in workers)
        if groups
        else not any(one.get("group") for one in processes),
    )
    if plan.get("balance"):
        sizes, labels = plan["balance"]["sizes"], plan["group_labels"]
        yield "balance", "an object with a size of each worker", len(sizes) == len(workers)
        yield (
            "group_labels",
            "a list with a label of each group",
            len(together) < 2 or len(labels) == len(together),
        )
    used = plan.get("profile")
    if used and used["fits"]:
        yield (
            "profile",
            "an object with a speed of each worker",
            len(used["speeds"]) == len(workers),
        )


def _name(process: Json) -> str:
    """Return the name of a process with this role and index in a real plan."""
    index = process["index"]
    return str(process["role"]) + ("" if index is None else "-%d" % index)


def _are_sets(sets: List[List[int]], workers: int, holds_all: bool = False) -> bool:
    """Return True if no set is empty, and each index below `workers` occurs at most once.

    With `holds_all`, the sets must contain each index.
    """
    found = [index for members in sets for index in members]
    return (
        all(sets)
        and len(set(found)) == len(found)
        and set(found) <= set(range(workers))
        and (not holds_all or len(found) == workers)
    )
