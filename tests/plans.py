"""Plans and processes for tests, with the fields that count."""

from mxcluster.model.plan import NodePlan, Plan, Process

OPTIONS = {"lease": 60.0}


def process_of(role="worker", index=0, **fields):
    """Return a process of a plan; `fields` are other fields."""
    given = {
        "name": "%s-%s" % (role, index),
        "role": role,
        "index": index,
        "host": "node1",
        "address": "127.0.0.11",
    }
    return Process(**dict(given, **fields))


def plan_with(*processes, **fields):
    """Return a plan with these processes; `fields` are other fields as in JSON."""
    given = {"job": "job-1", "kv": "dist_sync", "options": OPTIONS, "nodes": {}, "processes": []}
    plan = Plan.decode(dict(given, **fields))
    return plan.replaced(processes=list(processes)) if processes else plan


def part_json(*processes, host="node1", **fields):
    """Return a node's part of a plan as JSON.

    `processes` are dicts with the fields that count, and `fields` are other fields.
    """
    common = {"job": "job-1", "host": host, "kv": "dist_sync", "options": OPTIONS, "nodes": {}}
    own = [dict({"host": host, "address": "127.0.0.1"}, **process) for process in processes]
    return NodePlan.decode(dict(common, processes=own, **fields)).encode()


def part_of(*processes, **fields):
    """Return a node's part of a plan. Arguments as for `part_json`."""
    return NodePlan.decode(part_json(*processes, **fields))
