"""Inventories as small YAML files, and their plans.

A case holds the inputs of a plan: groups, hosts (host variables), forks, records, files,
options.
"""

import copy
import pathlib

import yaml

from mxcluster.job import options
from mxcluster.job.plan import Inputs, make_plan
from mxcluster.model.inventory import Inventory
from mxcluster.model.node_record import NodeRecord

FOLDER = pathlib.Path(__file__).parent


def load(name):
    """Return the content of tests/inventories/<name>.yml."""
    return yaml.safe_load((FOLDER / (name + ".yml")).read_text())


def changed(base, change):
    """Return `base` with the values of `change`.

    Dicts are merged, other values are replaced, null removes a key.
    """
    if not isinstance(base, dict) or not isinstance(change, dict):
        return copy.deepcopy(change)
    result = copy.deepcopy(base)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = changed(result.get(key), value)
    return result


def records_of(records):
    """Return {host: NodeRecord} from {host: fields that count}."""
    return {
        host: NodeRecord.decode(
            dict({"job_dir": "/state/jobs/" + host, "data_dir": "/state/data"}, host=host, **own)
        )
        for host, own in records.items()
    }


def inputs_of(case, job="job-1", **more):
    """Return the inputs of a plan: the case's inventory, records, options (as strings) and files.

    `more`: further fields of `Inputs`.
    """
    hosts = case.get("hosts") or {}
    return Inputs(
        options=options.cast(case.get("options") or {}),
        inventory=Inventory.decode(
            {"groups": case["groups"], "hosts": hosts, "forks": case.get("forks", 50)}
        ),
        records=records_of(case["records"]),
        job=job,
        files=case.get("files") or {},
        **more,
    )


def plan_of(case, job="job-1", **more):
    """Return the plan of a case. Arguments as for `inputs_of`."""
    return make_plan(inputs_of(case, job, **more))
