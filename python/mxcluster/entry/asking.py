"""Build the controller's request to `mxcluster.entry` on a node, and check its answer. Pure."""

import json
import shlex
from typing import Any, Dict, Optional

Json = Dict[str, Any]

READING = ("look", "record", "check", "status", "logs", "plan", "jobs")
# Keys of a result that Ansible acts on. The probe and the agent run as the training user, so their
# answers may not set these keys.
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
NEEDS = dict(
    {command: ["job_dir"] for command in ("start", "wait", "status", "stop", "logs", "plan")},
    collect=["job_dir", "output"],
    jobs=["jobs_dir"],
    piece=["job_dir", "file"],
)
# Arguments that the node gets. Only the controller uses the other arguments.
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
NO_PROGRAM = (126, 127)  # exit status of a shell: the program cannot run, or was not found
ANEW = ": run provision.yml"
OLDER = ": the node may have another version of mxcluster; run provision.yml (running jobs go on)"


def missing(asked: Json) -> Optional[str]:
    """Return the error text for a command that lacks arguments, or None if it has all of them."""
    lacking = [name for name in NEEDS.get(asked["command"], []) if asked.get(name) in (None, "")]
    return "command=%s needs %s" % (asked["command"], " and ".join(lacking)) if lacking else None


def program(python: str) -> str:
    """Return the command line of `mxcluster.entry` for a shell on the node; `python` is a path."""
    home = "~/" if python.startswith("~/") else ""  # the shell on the node expands ~
    return "%s%s -I -m mxcluster.entry" % (home, shlex.quote(python[len(home) :]))


def request(asked: Json, check: bool) -> bytes:
    """Return the bytes for the stdin of `mxcluster.entry`. `check`: True in check mode."""
    return json.dumps(
        dict({name: asked.get(name) for name in TOLD}, check=check), sort_keys=True
    ).encode()


def result(asked: Json, code: int, out: str, err: str) -> Json:
    """Return the result of the Ansible task (dict) for a finished run of `mxcluster.entry`.

    `asked`: the arguments of the task. `code`, `out`, `err`: exit status, stdout and stderr of the
    run.
    The result of a failed command has "failed" and "msg".
    """
    where = "%s on this node" % asked["python"]
    answer = _last(out)
    if code in NO_PROGRAM and answer is None:
        last = (err.strip().splitlines() or [""])[-1]
        cure = ANEW if asked["python"] in last or not last else ""
        return _failed("%s cannot be run%s%s" % (where, " (%s)" % last if last else "", cure))
    if answer is None:
        tail = "\n".join((err or out).strip().splitlines()[-5:]) or "(nothing)"
        cure = OLDER if "No module named" in tail else ""
        return _failed(
            "%s -I -m mxcluster.entry (%s) ended with status %d and without an answer%s. Its last "
            "output:\n%s" % (asked["python"], asked["command"], code, cure, tail)
        )
    if code != 0:
        return _failed(
            str(
                answer.get("error")
                or "%s (%s) ended with status %d" % (where, asked["command"], code)
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
    """Return the last line of `out` that is a JSON object, as a dict, or None without such a line.

    A shell and its start files may print other lines, too.
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
        changed=command in ("start", "collect") or bool(answer.get("ran") or answer.get("cleared")),
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
    """Return the task's result in check mode for a `command` that would change the node.

    In check mode no job was started, so the commands wait and stop find no job.
    """
    found = {
        "changed": command in ("start", "collect"),
        "msg": "check mode: the command %s was not run" % command,
    }  # type: Json
    if command in ("wait", "stop"):
        found["status"] = None
    if command == "wait":
        found.update(ended=True, progress={})
    if command == "stop":
        found["ran"] = False
    return found
