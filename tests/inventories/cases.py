"""Inventories as small YAML files, and their plans.

A case holds the arguments of make_plan: groups, hosts (host variables), forks, records, files,
options.
"""

import copy
import pathlib

import yaml

from mxcluster.job import options
from mxcluster.job.plan import make_plan
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
    folders = {"job_dir": "/state/jobs", "data_dir": "/state/data"}
    return {
        host: NodeRecord.decode(dict(folders, host=host, **own)) for host, own in records.items()
    }


def plan_of(case, job="job-1", **more):
    """Call make_plan with the case's inventory, records, options (as strings) and files."""
    hosts = case.get("hosts") or {}
    inventory = {"groups": case["groups"], "hosts": hosts, "forks": case.get("forks", 50)}
    everybody = set(hosts) | {host for members in case["groups"].values() for host in members or []}
    return make_plan(
        options.cast(case.get("options") or {}),
        inventory,
        records_of(case["records"]),
        case.get("files") or {},
        job,
        {host: "/state/jobs/" + host for host in everybody},
        **more,
    )
