"""Statuses and failures for tests, from dicts that have only the fields of interest."""

from mxcluster.job import verdict
from mxcluster.model.answers import JobState, NodeResult
from mxcluster.model.failures import Failure
from mxcluster.model.status import Status
from mxcluster.model.verdict import Verdict


def of_process(part):
    """Return the dict of a process with the role and the index of its name."""
    role, _, index = part["name"].partition("-")
    return dict({"role": role, "index": int(index) if index.isdigit() else None}, **part)


def failure(given):
    return given and Failure.decode(of_process(given))


def status(given):
    """Return the Status of a dict without job, agent, and roles of processes."""
    if given is None:
        return None
    first = given.get("first_failure")
    whole = dict({"job": "j1", "agent": {"pid": 1, "start_time": 1}, "started": 1.0}, **given)
    whole["processes"] = [of_process(part) for part in given["processes"]]
    whole["first_failure"] = first and of_process(first)
    return Status.decode(whole)


def state(given):
    """Return the JobState of a dict {"status", "progress"}, None for None."""
    if given is None:
        return None
    known = status(given["status"])
    return JobState.decode(dict(given, status=known and known.encode()))


def of_verdict(given):
    """Return the Verdict of a dict that has only the fields of interest."""
    known = dict.fromkeys(("accuracy", "samples_per_s", "first_failure"))
    known.update(job="j1", kv="dist_sync", seconds=1.0, exit_codes={}, nodes={})
    return Verdict.decode(dict(known, **given))


def compute(plan, statuses, events, problems=None, **more):
    """Return `verdict.compute` as a dict, from {host: value} for each field of NodeResult."""
    fields = {name: more.pop(name, {}) for name in ("lost", "left", "untrue")}
    fields["problem"] = problems or {}
    results = {
        host: NodeResult.decode(
            {name: given[host] for name, given in fields.items() if host in given}
        ).replaced(status=status(known))
        for host, known in statuses.items()
    }
    return verdict.compute(plan, results, events, **more).encode()
