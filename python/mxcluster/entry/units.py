"""What root does for a job of the training user's: its systemd unit, its wish to the firewall, and the file it is packed into."""
import contextlib
import json
import os
import pwd
import re
import stat
import tempfile
import time
from typing import Any, Dict, List, Optional

from .. import firewall
from ..errors import MxclusterError
from . import programs

Json = Dict[str, Any]

TEMPLATE = "/etc/systemd/system/mxcluster-agent@.service"
WISHES = "/run/mxcluster"
UNIT_ENDS = 10  # seconds
PRIVATE = ("/tmp", "/var/tmp")  # a unit has its own: PrivateTmp=yes


def has_units(asked: Json) -> bool:
    """Whether a job is to be a unit: not without root, without systemd, or without the role agent_unit."""
    return bool(os.geteuid() == 0 and asked["user"] and os.path.exists(TEMPLATE) and os.path.isdir("/run/systemd/system"))


def hidden(asked: Json) -> List[str]:
    """What of the request of a `look` a job that is a unit could not see, a line each."""
    path = asked["request"].get("data_dir") or ""
    if not any((os.path.normpath(path) + "/").startswith(folder + "/") for folder in PRIVATE) or not has_units(asked):
        return []
    return ["data_dir=%s: a job has its own %s on this node and does not see what lies there: choose another folder, such as "
            "/srv/data" % (path, " and ".join(PRIVATE))]


def unit_of(asked: Json) -> Optional[str]:
    """The systemd unit of a job, None if it is not to be one: without root, without systemd, without the role agent_unit."""
    if not has_units(asked):
        return None
    job = os.path.basename(os.path.abspath(asked["job_dir"]))
    return "mxcluster-agent@%s.service" % job if re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*$", job) else None


def start(asked: Json, unit: str) -> Json:
    """Start a job as a unit: the answer of `start`.  Only the preparation and the job itself are the user's."""
    programs.program_of("prepare")  # imported once, for the two children that need it
    programs.answer_of(dict(asked, command="prepare"))
    # What jobs whose agent and controller were killed together have left: it says nothing to anybody any more.
    programs.call(["systemctl", "reset-failed", "mxcluster-agent@*", "mxcluster-firewall@*"])
    write_wish(asked["plan"], pwd.getpwnam(asked["user"]).pw_uid)
    code, out, err = programs.call(["systemctl", "start", unit])
    if code != 0:
        state = programs.call(["systemctl", "status", "--no-pager", "--full", "--output=cat", "--lines=30", unit])[1]
        # As the user, whose file it is: root would follow it wherever it leads.
        path = os.path.join(os.path.abspath(asked["job_dir"]), "agent.log")
        log = programs.call(["runuser", "-u", asked["user"], "--", "tail", "-n", "15", path])[1]
        # What was prepared goes, and the secrets that no agent has taken.
        with contextlib.suppress(MxclusterError):  # the reason of the start is what is told
            programs.answer_of(dict(asked, command="stop"))
        settle(asked, unit)
        raise MxclusterError(why_not_started(unit, (err or out).strip(), state, log))
    status = programs.answer_of(dict(asked, command="status"))["status"]
    return dict(job=status["job"], pid=status["agent"]["pid"], status=status)


def why_not_started(unit: str, said: str, state: str, log: str) -> str:
    """The agent's own error, if it has told one; else the last lines there are. `said` is systemctl's, about the command."""
    errors = []
    for line in state.splitlines() + log.splitlines():
        try:  # as `mxcluster.answer` gives it: {"error": "..."}
            errors.append(json.loads(line)["error"])
        except (ValueError, KeyError, TypeError):
            continue
    if errors:
        return "%s\n(%s did not start; `journalctl -u %s` on this node tells more)" % (errors[-1], unit, unit)
    last = [line for line in (log.strip() or state.strip()).splitlines() if line.strip()][-5:]
    return "\n".join(["%s did not start: %s" % (unit, (said.splitlines() or ["no reason was given"])[0])] + last)


def jobs_with_units(asked: Json) -> Optional[List[str]]:
    """The jobs whose unit is there and has not ended, as root sees it; None if root does not look."""
    if os.geteuid() != 0 or not asked["user"] or not os.path.isdir("/run/systemd/system"):
        return None
    _, out, _ = programs.call(["systemctl", "list-units", "--all", "--plain", "--no-legend", "--full", "mxcluster-agent@*"])
    rows = [line.split() for line in out.splitlines()]
    found = [re.match(r"mxcluster-agent@(.+)\.service$", row[0]) for row in rows
             if len(row) > 2 and row[2] in ("active", "activating", "deactivating", "reloading")]
    return sorted(match.group(1) for match in found if match)


def untrue_end(asked: Json, unit: str) -> Optional[str]:
    """Why the job cannot have ended as the answer to `wait`, O(told), says; None if it can.

    That answer is the training user's; the unit is root's. It is given some seconds: the agent ends after its last word.
    """
    if not asked["told"]:
        return None
    deadline = time.time() + UNIT_ENDS
    while True:
        _, out, _ = programs.call(["systemctl", "show", "-p", "ActiveState", "-p", "Result", unit])
        shown = dict(line.partition("=")[::2] for line in out.splitlines())
        state = shown.get("ActiveState", "")
        if state not in ("active", "activating", "deactivating", "reloading"):
            break
        if time.time() > deadline and state == "deactivating":
            break  # its agent has ended; what that has started may hang in the kernel
        if time.time() > deadline:
            return ("it was told that its part had ended (%s), but the unit %s was still %s %d s later: a process of %s has "
                    "forged the answer; root has ended the unit" % (asked["told"], unit, state, UNIT_ENDS,
                                                                    asked["user"]))
        time.sleep(0.1)
    if asked["told"] == "done" and state == "failed" and shown.get("Result") != "timeout":
        return ("it was told that its part was done, but its agent has failed (%s: %s): the answer is forged"
                % (unit, shown.get("Result")))
    return None


def settle(asked: Json, unit: str) -> List[str]:
    """Wait until the units of a job that has ended are gone, and the firewall is closed whatever has become of them.

    Returns what is there all the same, a line each: what only root sees of what is left of a job.
    """
    both = [unit, unit.replace("mxcluster-agent@", "mxcluster-firewall@")]
    programs.call(["systemctl", "stop"] + both)
    programs.call(["systemctl", "reset-failed"] + both)
    states = programs.call(["systemctl", "is-active"] + both)[1].split()
    lines = ["unit %s is %s" % (name, state) for name, state in zip(both, states) if state not in ("inactive", "unknown")]
    wish = os.path.join(WISHES, os.path.basename(os.path.abspath(asked["job_dir"])) + ".json")
    try:
        return lines + firewall.close(wish)
    except Exception as error:  # of whatever kind: the job's end is not to fail for it
        return lines + ["the firewall of job %s could not be changed: %s: %s" % (asked["job_dir"], type(error).__name__, error)]


def why_open(asked: Json) -> str:
    """Why nothing keeps strangers from the ports of jobs on this node, "" if something does."""
    if os.geteuid() != 0 or not asked["user"]:
        return "jobs run without root here (mxcluster_user is empty), so nothing keeps strangers from their ports"
    if not (os.path.exists(TEMPLATE) and os.path.isdir("/run/systemd/system")):
        return "jobs run without systemd's units here, so nothing keeps strangers from their ports"
    try:
        return firewall.can()
    except Exception as error:  # of whatever kind: it is told, and is no reason not to train
        return "whether anything keeps strangers from the ports of jobs is not known: %s: %s" % (type(error).__name__, error)


def write_wish(plan: Json, uid: int) -> None:
    """What the firewall is to let in: root's file, which the training user cannot change. `uid` is that user's."""
    if not os.path.isdir(WISHES):
        try:
            os.mkdir(WISHES)
        except OSError:
            if not os.path.isdir(WISHES):  # another start may have made it
                raise
        os.chmod(WISHES, 0o755)  # whatever the umask is: the agents read there what became of the firewall
    path = os.path.join(WISHES, plan["job"] + ".json")
    with open(path + ".part", "w") as target:
        json.dump(dict(plan["firewall"], uid=uid), target)
    os.rename(path + ".part", path)


def is_spooled(asked: Json) -> bool:
    """Whether root packs what is another's, or for another."""
    return bool(asked["spool"]) and os.geteuid() == 0 and bool(asked["user"] or asked["reader"])


def collect_into_spool(asked: Json) -> Json:
    """The answer of `collect`, packed by the user into a file that root has made where the user can change nothing.

    Whoever logs in fetches it as who he is. As root, Ansible's fetch would hold all of it in memory, more than once, and root
    would read whatever the user has put there.
    """
    spool = os.path.abspath(asked["spool"])
    try:
        if not os.path.isdir(spool):
            os.makedirs(spool)
            os.chmod(spool, 0o755)
        found = os.lstat(spool)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
            raise MxclusterError("%s is not a folder of root's that nobody else can write to: remove it, and try again" % spool)
        # Two controllers may wait for the same job, and each fetches what was packed for it.
        prefix = os.path.basename(os.path.abspath(asked["job_dir"])) + "-"
        target, path = tempfile.mkstemp(".tar", prefix, spool)
    except OSError as error:
        raise MxclusterError("what the job has left cannot be packed into %s (%s): mend that, and run this again"
                             % (spool, error)) from error
    try:
        answer = programs.answer_of(asked, os.dup(target))  # who writes closes its own
        os.fchown(target, asked["reader"] or 0, -1)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(target)
    if answer.get("problem"):
        os.unlink(path)
    return dict(answer, output=path, spooled=not answer.get("problem"))
