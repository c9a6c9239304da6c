"""Build the command line of `mxcluster.entry` on a node, and check the program's answer.

All functions are pure.
"""

import json
import shlex
from typing import Optional

from mxcluster.ansible.contact import Output
from mxcluster.ansible.edge import TaskResult
from mxcluster.errors import MxclusterError
from mxcluster.model import answers
from mxcluster.model.protocol import (
    OTHER_VERSION,
    Jobs,
    Request,
    Stop,
    Wait,
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


def result(python: str, request: Request, host: str, done: Output) -> TaskResult:
    """Return the checked answer to `request` as the result of the Ansible task.

    Raises MxclusterError if the command has failed, or if the answer is invalid.

    Args: `python` see `program`; `host` the node's name; `done` the finished run of the program.
    """
    answer = request.checked(host, _content(python, request, done))
    found = dict(answer.encode(), changed=request.CHANGES)
    if isinstance(answer, answers.Stopped):
        found["changed"] = answer.ran
    if isinstance(answer, answers.Progress):
        found["ended"] = answer.status.has_ended
    if isinstance(answer, answers.JobList) and isinstance(request, Jobs):
        found["changed"] = bool(answer.cleared)
        found["has"] = request.job in [entry.job for entry in answer.jobs]
        found["paths"] = {"python": python, "jobs_dir": request.jobs_dir}
    return found


def _content(python: str, request: Request, done: Output) -> object:
    """Return the JSON of the program's answer. Raises MxclusterError without an answer."""
    where = "%s on this node" % python
    answer = _last(done.stdout)
    if answer is None and done.rc in NO_PROGRAM:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        cure = ANEW if python in last or not last else OTHER
        raise MxclusterError("cannot run %s%s%s" % (where, " (%s)" % last if last else "", cure))
    if answer is None:
        output = (done.stderr or done.stdout).strip()
        tail = "\n".join(output.splitlines()[-5:]) or "(nothing)"
        cure = ": " + OTHER_VERSION if "No module named" in tail else OTHER
        raise MxclusterError(
            "%s -I -m mxcluster.entry (%s) ended with status %d and without an answer%s. The "
            "last output:\n%s" % (python, request.KIND, done.rc, cure, tail)
        )
    if done.rc != 0:
        raise MxclusterError(
            answer.get("error")
            or "%s (%s) ended with status %d and without an error message: run the playbook "
            "again with -vvv"
            % (where, request.KIND, done.rc)
        )
    return answer


def _last(out: str) -> Optional[dict]:  # type: ignore[type-arg]  # JSON of the node, not checked
    """Return the last JSON object among the lines of `out`, or None without an object.

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


def of_check_mode(request: Request) -> TaskResult:
    """Return the result of a task in check mode, in place of a run of `mxcluster.entry`.

    Check mode starts no job. So `wait` and `stop` give the result for a node without a job.
    """
    found: TaskResult = {
        "changed": request.CHANGES,
        "msg": "check mode: mxcluster did not run the command %s" % request.KIND,
    }
    if isinstance(request, Wait):
        found.update(status=None, ended=True, progress={})
    if isinstance(request, Stop):
        found.update(status=None, ran=False)
    return found
