"""Root's part of a job of the training user: systemd unit, firewall request, packed file."""

import contextlib
import json
import os
import pwd
import re
import stat
import tempfile
import time
from typing import Any, Dict, List, Optional

from mxcluster.entry import programs
from mxcluster.errors import DAMAGED, MxclusterError
from mxcluster.file_io import replace
from mxcluster.node import firewall

Json = Dict[str, Any]

TEMPLATE = "/etc/systemd/system/mxcluster-agent@.service"
WISHES = "/run/mxcluster"
UNIT_ENDS = 10  # seconds
PRIVATE = ("/tmp", "/var/tmp")  # PrivateTmp=yes: a unit sees its own, empty folders here


def has_units(asked: Json) -> bool:
    """Return True if jobs run as systemd units here.

    This needs root, a training user, systemd, and the unit's template from the role agent_unit.
    """
    return bool(
        os.geteuid() == 0
        and asked["user"]
        and os.path.exists(TEMPLATE)
        and os.path.isdir("/run/systemd/system")
    )


def hidden(asked: Json) -> List[str]:
    """Return a line if a job in a unit cannot see the `data_dir` of the request, else []."""
    path = asked["request"].get("data_dir") or ""
    if not any(
        (os.path.normpath(path) + "/").startswith(folder + "/") for folder in PRIVATE
    ) or not has_units(asked):
        return []
    return [
        "data_dir=%s: a job has its own %s on this node and does not see this folder: choose "
        "another folder, such as /srv/data" % (path, " and ".join(PRIVATE))
    ]


def unit_of(asked: Json) -> Optional[str]:
    """Return the name of the job's systemd unit, or None if the job does not run as a unit."""
    if not has_units(asked):
        return None
    job = os.path.basename(os.path.abspath(asked["job_dir"]))
    return (
        "mxcluster-agent@%s.service" % job
        if re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*$", job)
        else None
    )


def start(asked: Json, unit: str) -> Json:
    """Start a job as the systemd unit `unit` and return {"job", "pid", "status"}.

    Only the preparation and the job itself run as the training user. Raises MxclusterError if the
    unit fails.
    """
    programs.program_of("prepare")  # imported once, for the two children that need it
    programs.answer_of(dict(asked, command="prepare"))
    # Forget failed units of earlier jobs, whose agent and controller were killed together.
    programs.call(["systemctl", "reset-failed", "mxcluster-agent@*", "mxcluster-firewall@*"])
    write_wish(asked["plan"], pwd.getpwnam(asked["user"]).pw_uid)
    code, out, err = programs.call(["systemctl", "start", unit])
    if code != 0:
        state = programs.call(
            ["systemctl", "status", "--no-pager", "--full", "--output=cat", "--lines=30", unit]
        )[1]
        # Read the user's file as the user: as root, a link in its place could lead to any file.
        path = os.path.join(os.path.abspath(asked["job_dir"]), "agent.log")
        log = programs.call(["runuser", "-u", asked["user"], "--", "tail", "-n", "15", path])[1]
        # Remove the prepared job, and secrets that the agent has not read.
        with contextlib.suppress(MxclusterError):  # the error of the start is raised below
            programs.answer_of(dict(asked, command="stop"))
        settle(asked, unit)
        raise MxclusterError(why_not_started(unit, (err or out).strip(), state, log))
    status = programs.answer_of(dict(asked, command="status"))["status"]
    return dict(job=status["job"], pid=status["agent"]["pid"], status=status)


def why_not_started(unit: str, said: str, state: str, log: str) -> str:
    """Return why `unit` did not start: the agent's own error, else the last lines of its output.

    `said`: the message of systemctl. `state`: its status of the unit. `log`: the end of agent.log.
    """
    errors = []
    for line in state.splitlines() + log.splitlines():
        try:  # an error from `mxcluster.node.json_cli`: {"error": "..."}
            errors.append(json.loads(line)["error"])
        except DAMAGED:
            continue
    if errors:
        return "%s\n(%s did not start; see `journalctl -u %s` on this node)" % (
            errors[-1],
            unit,
            unit,
        )
    last = [line for line in (log.strip() or state.strip()).splitlines() if line.strip()][-5:]
    return "\n".join(
        ["%s did not start: %s" % (unit, (said.splitlines() or ["no reason was given"])[0])] + last
    )


def jobs_with_units(asked: Json) -> Optional[List[str]]:
    """Return the names of jobs whose unit is active, starting or stopping, sorted.

    Returns None if root's rights, a training user or systemd is missing.
    """
    if os.geteuid() != 0 or not asked["user"] or not os.path.isdir("/run/systemd/system"):
        return None
    _, out, _ = programs.call(
        [
            "systemctl",
            "list-units",
            "--all",
            "--plain",
            "--no-legend",
            "--full",
            "mxcluster-agent@*",
        ]
    )
    rows = [line.split() for line in out.splitlines()]
    found = [
        re.match(r"mxcluster-agent@(.+)\.service$", row[0])
        for row in rows
        if len(row) > 2 and row[2] in ("active", "activating", "deactivating", "reloading")
    ]
    return sorted(match.group(1) for match in found if match)


def untrue_end(asked: Json, unit: str) -> Optional[str]:
    """Return why asked["told"] cannot be true, or None if it can.

    asked["told"] is the reason for the job's end in the answer to `wait`. The training user's
    process gave that answer, and root compares it with the state of the unit. The function waits up
    to UNIT_ENDS seconds for the unit's end, because the agent ends shortly after its last status.
    """
    if not asked["told"]:
        return None
    deadline = time.monotonic() + UNIT_ENDS
    while True:
        _, out, _ = programs.call(["systemctl", "show", "-p", "ActiveState", "-p", "Result", unit])
        shown = dict(line.partition("=")[::2] for line in out.splitlines())
        state = shown.get("ActiveState", "")
        if state not in ("active", "activating", "deactivating", "reloading"):
            break
        if time.monotonic() > deadline and state == "deactivating":
            break  # the agent has ended; a process of the job may hang in the kernel
        if time.monotonic() > deadline:
            return (
                "the node answered that its part of the job had ended (%s), but %d s later the "
                "unit %s was still %s: a process of %s has forged the answer, and root has ended "
                "the unit" % (asked["told"], UNIT_ENDS, unit, state, asked["user"])
            )
        time.sleep(0.1)
    if asked["told"] == "done" and state == "failed" and shown.get("Result") != "timeout":
        return (
            "the node answered that its part of the job was done, but the agent has failed "
            "(%s: %s): a process of %s has forged the answer"
            % (unit, shown.get("Result"), asked["user"])
        )
    return None


def settle(asked: Json, unit: str) -> List[str]:
    """End the units of a job that has ended, and close the firewall in any case.

    Returns a line for each unit and firewall rule that is still there. Only root sees these.
    """
    both = [unit, unit.replace("mxcluster-agent@", "mxcluster-firewall@")]
    programs.call(["systemctl", "stop"] + both)
    programs.call(["systemctl", "reset-failed"] + both)
    states = programs.call(["systemctl", "is-active"] + both)[1].split()
    lines = [
        "unit %s is %s" % (name, state)
        for name, state in zip(both, states)
        if state not in ("inactive", "unknown")
    ]
    wish = os.path.join(WISHES, os.path.basename(os.path.abspath(asked["job_dir"])) + ".json")
    try:
        return lines + firewall.close(wish)
    except Exception as error:  # no error here may prevent the end of the job
        return lines + [
            "the firewall rules of the job in %s could not be removed: %s: %s"
            % (asked["job_dir"], type(error).__name__, error)
        ]


def why_open(asked: Json) -> str:
    """Return why job ports here are open to other machines, or "" if a firewall can close them."""
    if os.geteuid() != 0 or not asked["user"]:
        return (
            "jobs run without root here (mxcluster_user is empty), so no firewall protects their "
            "ports"
        )
    if not (os.path.exists(TEMPLATE) and os.path.isdir("/run/systemd/system")):
        return "jobs run without systemd units here, so no firewall protects their ports"
    try:
        return firewall.can()
    except Exception as error:  # training goes on after any error here
        return "the state of the firewall for job ports is unknown: %s: %s" % (
            type(error).__name__,
            error,
        )


def write_wish(plan: Json, uid: int) -> None:
    """Write the job's firewall request to a file that only root can change.

    `plan` is the node's part of the plan. `uid` is the uid of the training user.
    """
    if not os.path.isdir(WISHES):
        try:
            os.mkdir(WISHES)
        except OSError:
            if not os.path.isdir(WISHES):  # another start may have made the folder
                raise
        os.chmod(WISHES, 0o755)  # independent of the umask: agents read the firewall's notes there
    replace(
        os.path.join(WISHES, plan["job"] + ".json"), json.dumps(dict(plan["firewall"], uid=uid))
    )


def is_spooled(asked: Json) -> bool:
    """Return True if root packs the job's files into the spool.

    Root does so if the training user or the login user is not root.
    """
    return bool(asked["spool"]) and os.geteuid() == 0 and bool(asked["user"] or asked["reader"])


def collect_into_spool(asked: Json) -> Json:
    """Carry out `collect` with a tar file in the folder asked["spool"]. Return the answer.

    Root makes the tar file and the training user fills it, in a folder that the user cannot change.
    The login user fetches the file with its own rights. As root, Ansible's fetch would hold the
    whole file in memory, more than once, and root would read any file that the user put there.
    Raises MxclusterError if the folder or the file cannot be made.
    """
    spool = os.path.abspath(asked["spool"])
    try:
        if not os.path.isdir(spool):
            os.makedirs(spool)
            os.chmod(spool, 0o755)
        found = os.lstat(spool)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
            raise MxclusterError(
                "%s is not a folder of root that only root can write to: remove this path, and try "
                "again" % spool
            )
        # Two controllers may wait for the same job. Each fetches its own file.
        prefix = os.path.basename(os.path.abspath(asked["job_dir"])) + "-"
        target, path = tempfile.mkstemp(".tar", prefix, spool)
    except OSError as error:
        raise MxclusterError(
            "the job's files cannot be packed into %s on this node (%s): correct the cause, and "
            "fetch the files with train.yml -e attach=%s"
            % (spool, error.strerror or error, os.path.basename(os.path.abspath(asked["job_dir"])))
        ) from error
    try:
        answer = programs.answer_of(asked, os.dup(target))  # the writer closes its descriptor
        os.fchown(target, asked["reader"] or 0, -1)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(target)
    if answer.get("problem"):
        os.unlink(path)
    return dict(answer, output=path, spooled=not answer.get("problem"))
