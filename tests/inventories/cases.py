"""Inventories as small YAML files, and the plan that comes of one.

A case holds the arguments of make_plan: groups, hosts (host variables), forks, records, files, options.
"""
import copy
import pathlib

import yaml

from mxcluster import options
from mxcluster.plan import make_plan

FOLDER = pathlib.Path(__file__).parent


def load(name):
    """The content of tests/inventories/<name>.yml."""
    return yaml.safe_load((FOLDER / (name + ".yml")).read_text())


def changed(base, change):
    """`base` with the values of `change` in it; dicts are merged, everything else is replaced, null takes a key out."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return copy.deepcopy(change)
    result = copy.deepcopy(base)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = changed(result.get(key), value)
    return result


def plan_of(case, job="job-1", **more):
    """make_plan with the case's inventory, records, options (as strings) and files."""
    hosts = case.get("hosts") or {}
    inventory = {"groups": case["groups"], "hosts": hosts, "forks": case.get("forks", 50)}
    everybody = set(hosts) | {host for members in case["groups"].values() for host in members or []}
    return make_plan(options.cast(case.get("options") or {}), inventory, case["records"], case.get("files") or {}, job,
                     {host: "/state/jobs/" + host for host in everybody}, **more)
