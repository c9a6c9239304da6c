"""Build the controller's request to `mxcluster.entry` on a node, and parse the answer.

All functions are pure.
"""

import json
import shlex
from typing import Any, Dict, Optional

Json = Dict[str, Any]

READING = ("look", "record", "check", "status", "logs", "plan", "jobs")
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
OF_A_JOB = (
    "start",
    "prepare",
    "launch",
    "join",
    "wait",
    "status",
    "stop",
    "logs",
    "plan",
)
CHANGING = ("start", "prepare", "launch", "collect")
NEEDS = dict(
    {command: ["job_dir"] for command in OF_A_JOB},
    collect=["job_dir", "output"],
    jobs=["jobs_dir"],
    piece=["job_dir", "file"],
)
# The controller sends these arguments to the node, and keeps all other arguments.
TOLD = (
    "command",
    "job_dir",
    "jobs_dir",
    "job",
    "lines",
    "plan",
    "secret_env",
    "token",
    "script",
    "request",
    "seconds",
    "took",
    "peer",
    "file",
    "offset",
    "most",
    "output",
    "spool",
    "told",
    "reader",
    "user",
)
NO_PROGRAM = (126, 127)  # exit status of a shell: the program cannot run, or is missing
ANEW = ": run provision.yml"
OTHER = ": correct the error on the node, and run the playbook again"
OLDER = ": the node may have another version of mxcluster; run provision.yml (running jobs go on)"


def missing(asked: Json) -> Optional[str]:
    """Return the error text if asked["command"] lacks arguments, else None."""
    lacking = [name for name in NEEDS.get(asked["command"], []) if asked.get(name) in (None, "")]
    return (
        "command=%s needs %s: add the missing arguments to the task"
        % (asked["command"], " and ".join(lacking))
        if lacking
        else None
    )


def program(python: str) -> str:
    """Return the shell command line that runs `mxcluster.entry` on the node.

    `python`: the path of the Python on the node, which may begin with ~/.
    """
    home = "~/" if python.startswith("~/") else ""  # the shell on the node expands ~
    return "%s%s -I -m mxcluster.entry" % (home, shlex.quote(python[len(home) :]))


def request(asked: Json, check: bool) -> bytes:
    """Return the request for stdin of `mxcluster.entry` (JSON as bytes).

    `asked`: the arguments of the task. `check`: True in check mode.
    """
    return json.dumps(
        dict({name: asked.get(name) for name in TOLD}, check=check), sort_keys=True
    ).encode()


def result(asked: Json, code: int, out: str, err: str) -> Json:
    """Return the result of the Ansible task (dict) for a finished run of `mxcluster.entry`.

    `asked`: the arguments of the task. `code`, `out`, `err`: exit status, stdout and stderr of the
    run.

    For a failed command the result has "failed" and "msg".
    """
    where = "%s on this node" % asked["python"]
    answer = _last(out)
    if code in NO_PROGRAM and answer is None:
        last = (err.strip().splitlines() or [""])[-1]
        cure = ANEW if asked["python"] in last or not last else OTHER
        return _failed("cannot run %s%s%s" % (where, " (%s)" % last if last else "", cure))
    if answer is None:
        tail = "\n".join((err or out).strip().splitlines()[-5:]) or "(nothing)"
        cure = OLDER if "No module named" in tail else OTHER
        return _failed(
            "%s -I -m mxcluster.entry (%s) ended with status %d and without an answer%s. The "
            "last output:\n%s" % (asked["python"], asked["command"], code, cure, tail)
        )
    if code != 0:
        return _failed(
            str(
                answer.get("error")
                or "%s (%s) ended with status %d and without an error message: run the playbook "
                "again with -vvv"
                % (where, asked["command"], code)
            )
        )
    told = {
        key: value
        for key, value in answer.items()
        if key not in ANSIBLES_OWN and not key.startswith(("_", "ansible_"))
    }
    return _of(asked, told)


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


def _of(asked: Json, answer: Json) -> Json:
    command = asked["command"]
    if command in ("record", "check"):
        return {"changed": False, command: answer}
    found = dict(
        answer,
        changed=command in CHANGING or bool(answer.get("ran") or answer.get("cleared")),
    )
    if command in ("wait", "status"):
        status = answer.get("status")
        found["ended"] = isinstance(status, dict) and status.get("state") == "ended"
    if command == "jobs":
        jobs = answer.get("jobs")
        found["has"] = asked["job"] in [
            entry.get("job")
            for entry in (jobs if isinstance(jobs, list) else [])
            if isinstance(entry, dict)
        ]
        found["asked"] = {"python": asked["python"], "jobs_dir": asked["jobs_dir"]}
    return found


def of_check_mode(command: str) -> Json:
    """Return the result (dict) of a task in check mode, in place of a run of `command`.

    Check mode starts no job. So `wait` and `stop` give the result for a node without a job.
    """
    found = {
        "changed": command in CHANGING,
        "msg": "check mode: mxcluster did not run the command %s" % command,
    }  # type: Json
    if command in ("wait", "stop"):
        found["status"] = None
    if command == "wait":
        found.update(ended=True, progress={})
    if command == "stop":
        found["ran"] = False
    return found
