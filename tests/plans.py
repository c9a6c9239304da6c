"""Plans and processes for tests, with the fields that count."""

import json

from mxcluster.model.plan import NodePlan, Plan, Process

OPTIONS = {"lease": 60.0}


def write_record(folder, host, **fields):
    """Write the node record of `host` into a folder; `fields` are other fields."""
    given = {
        "schema": 2,
        "host": host,
        "interfaces": {"lo": ["127.0.0.1/8"]},
        "address_of_default_route": None,
        "gpus": 0,
        "python": "/env/bin/python",
        "mxnet": "1.9.1",
        "model_zoo": [],
        "job_dir": "/jobs/" + host,
        "data_dir": "/data",
    }
    (folder / (host + ".json")).write_text(json.dumps(dict(given, **fields)))


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
