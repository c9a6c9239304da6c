"""Build the command line of `mxcluster.entry` on a node, and parse the program's answer.

All functions are pure.
"""

import json
import shlex
from typing import Any, Dict, Optional

from mxcluster.model.protocol import (
    OTHER_VERSION,
    Jobs,
    Request,
    Status,
    Stop,
    Wait,
)

Json = Dict[str, Any]

# Ansible acts on these keys of a result. The probe and the agent run as the training user, so an
# answer of the probe or the agent may not set these keys.
ANSIBLES_OWN = (
    "add_group",
    "add_host",
    "changed",
    "deprecations",
    "diff",
    "exception",
    "failed",
    "invocation",
    "msg",
    "rc",
    "results",
    "skipped",
    "unreachable",
    "warnings",
)
NO_PROGRAM = (126, 127)  # exit status of a shell: the program cannot run, or is missing
ANEW = ": run provision.yml"
OTHER = ": correct the error on the node, and run the playbook again"


def program(python: str) -> str:
    """Return the shell command line that runs `mxcluster.entry` on the node.

    `python`: the path of the Python on the node, which may begin with ~/.
    """
    home = "~/" if python.startswith("~/") else ""  # the shell on the node expands ~
    return "%s%s -I -m mxcluster.entry" % (home, shlex.quote(python[len(home) :]))


def result(python: str, request: Request, code: int, out: str, err: str) -> Json:
    """Return the result of the Ansible task (dict) for a finished run of `mxcluster.entry`.

    `python`: see `program`. `code`, `out`, `err`: exit status, stdout and stderr of the run.

    For a failed command the result has "failed" and "msg".
    """
    where = "%s on this node" % python
    answer = _last(out)
    if code in NO_PROGRAM and answer is None:
        last = (err.strip().splitlines() or [""])[-1]
        cure = ANEW if python in last or not last else OTHER
        return _failed("cannot run %s%s%s" % (where, " (%s)" % last if last else "", cure))
    if answer is None:
        tail = "\n".join((err or out).strip().splitlines()[-5:]) or "(nothing)"
        cure = ": " + OTHER_VERSION if "No module named" in tail else OTHER
        return _failed(
            "%s -I -m mxcluster.entry (%s) ended with status %d and without an answer%s. The "
            "last output:\n%s" % (python, request.KIND, code, cure, tail)
        )
    if code != 0:
        return _failed(
            str(
                answer.get("error")
                or "%s (%s) ended with status %d and without an error message: run the playbook "
                "again with -vvv"
                % (where, request.KIND, code)
            )
        )
    facts = {
        key: value
        for key, value in answer.items()
        if key not in ANSIBLES_OWN and not key.startswith(("_", "ansible_"))
    }
    return _of(python, request, facts)


def _failed(text: str) -> Json:
    return {"failed": True, "changed": False, "msg": text}


def _last(out: str) -> Optional[Json]:
    """Return the last JSON object (dict) among the lines of `out`, or None without an object.

    `out` may also contain lines that a shell or its start files print.
    """
    for line in reversed(out.strip().splitlines()):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


def _of(python: str, request: Request, answer: Json) -> Json:
    found = dict(
        answer, changed=request.CHANGES or bool(answer.get("ran") or answer.get("cleared"))
    )
    if isinstance(request, (Wait, Status)):
        status = answer.get("status")
        found["ended"] = isinstance(status, dict) and status.get("state") == "ended"
    if isinstance(request, Jobs):
        jobs = answer.get("jobs")
        found["has"] = request.job in [
            entry.get("job")
            for entry in (jobs if isinstance(jobs, list) else [])
            if isinstance(entry, dict)
        ]
        found["asked"] = {"python": python, "jobs_dir": request.jobs_dir}
    return found


def of_check_mode(request: Request) -> Json:
    """Return the result (dict) of a task in check mode, in place of a run of `mxcluster.entry`.

    Check mode starts no job. So `wait` and `stop` give the result for a node without a job.
    """
    found = {
        "changed": request.CHANGES,
        "msg": "check mode: mxcluster did not run the command %s" % request.KIND,
    }  # type: Json
    if isinstance(request, Wait):
        found.update(status=None, ended=True, progress={})
    if isinstance(request, Stop):
        found.update(status=None, ran=False)
    return found
