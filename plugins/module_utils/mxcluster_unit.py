# -*- coding: utf-8 -*-
"""What root does for a job of the training user's: its systemd unit, its wish to the firewall, and the file it is packed into."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import fcntl
import json
import os
import pwd
import re
import stat
import tempfile
import time

from ansible.module_utils.mxcluster_agent import argv_for, run_as, told_to_start, with_secrets

TEMPLATE = "/etc/systemd/system/mxcluster-agent@.service"
WISHES = "/run/mxcluster"
UNIT_ENDS = 10  # seconds
PRIVATE = ("/tmp", "/var/tmp")  # a unit has its own: PrivateTmp=yes


def has_units(params):
    """Whether a job is to be a unit: not without root, without systemd, or without the role agent_unit."""
    return bool(os.geteuid() == 0 and params["user"] and os.path.exists(TEMPLATE) and os.path.isdir("/run/systemd/system"))


def hidden(params):
    """What of the request of a `look` a job that is a unit could not see, a line each."""
    path = params["request"].get("data_dir") or ""
    if not any((os.path.normpath(path) + "/").startswith(folder + "/") for folder in PRIVATE) or not has_units(params):
        return []
    return ["data_dir=%s: a job has its own %s on this node and does not see what lies there: choose another folder, such as "
            "/srv/data" % (path, " and ".join(PRIVATE))]



def unit_of(params):
    """The systemd unit of a job, None if it is not to be one: without root, without systemd, without the role agent_unit."""
    if not has_units(params):
        return None
    job = os.path.basename(os.path.abspath(params["job_dir"]))
    return "mxcluster-agent@%s.service" % job if re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*$", job) else None


def start_unit(module, unit):
    """Start a job as a unit: the answer of `start`.  Only the preparation and the job itself are the user's."""
    params = module.params
    agent = [params["python"], "-m", "mxcluster.agent"]
    there = ["--job-dir", os.path.abspath(params["job_dir"])]
    run_as(module, agent + ["prepare"] + there + with_secrets(params), stdin=told_to_start(params))
    # What jobs whose agent and controller were killed together have left: it says nothing to anybody any more.
    module.run_command(["systemctl", "reset-failed", "mxcluster-agent@*", "mxcluster-firewall@*"])
    write_wish(params["plan"], pwd.getpwnam(params["user"]).pw_uid)
    code, out, err = module.run_command(["systemctl", "start", unit])
    if code != 0:
        state = module.run_command(["systemctl", "status", "--no-pager", "--full", "--output=cat", "--lines=30", unit])[1]
        # As the user, whose file it is: root would follow it wherever it leads.
        path = os.path.join(os.path.abspath(params["job_dir"]), "agent.log")
        log = module.run_command(["runuser", "-u", params["user"], "--", "tail", "-n", "15", path])[1]
        # What was prepared goes, and the secrets that no agent has taken.
        module.run_command(["runuser", "-u", params["user"], "--"] + agent + ["stop"] + there, cwd="/")
        settle_unit(module, unit)
        module.fail_json(msg=why_not_started(unit, (err or out).strip(), state, log))
    answer = run_as(module, agent + ["status"] + there)
    status = answer["status"]
    return dict(job=status["job"], pid=status["agent"]["pid"], status=status)


def why_not_started(unit, said, state, log):
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


def jobs_with_units(module):
    """The jobs whose unit is there and has not ended, as root sees it; None if root does not look."""
    if os.geteuid() != 0 or not module.params["user"] or not os.path.isdir("/run/systemd/system"):
        return None
    _, out, _ = module.run_command(["systemctl", "list-units", "--all", "--plain", "--no-legend", "--full", "mxcluster-agent@*"])
    rows = [line.split() for line in out.splitlines()]
    found = [re.match(r"mxcluster-agent@(.+)\.service$", row[0]) for row in rows
             if len(row) > 2 and row[2] in ("active", "activating", "deactivating", "reloading")]
    return sorted(match.group(1) for match in found if match)


def untrue_end(module, unit):
    """Why the job cannot have ended as the answer to `wait`, O(told), says; None if it can.

    That answer is the training user's; the unit is root's. It is given some seconds: the agent ends after its last word.
    """
    if not module.params["told"]:
        return None
    deadline = time.time() + UNIT_ENDS
    while True:
        _, out, _ = module.run_command(["systemctl", "show", "-p", "ActiveState", "-p", "Result", unit])
        shown = dict(line.partition("=")[::2] for line in out.splitlines())
        state = shown.get("ActiveState", "")
        if state not in ("active", "activating", "deactivating", "reloading"):
            break
        if time.time() > deadline and state == "deactivating":
            break  # its agent has ended; what that has started may hang in the kernel
        if time.time() > deadline:
            return ("it was told that its part had ended (%s), but the unit %s was still %s %d s later: a process of %s has "
                    "forged the answer; root has ended the unit" % (module.params["told"], unit, state, UNIT_ENDS,
                                                                    module.params["user"]))
        time.sleep(0.1)
    if module.params["told"] == "done" and state == "failed" and shown.get("Result") != "timeout":
        return ("it was told that its part was done, but its agent has failed (%s: %s): the answer is forged"
                % (unit, shown.get("Result")))
    return None


def settle_unit(module, unit):
    """Wait until the units of a job that has ended are gone, and the firewall is closed whatever has become of them.

    Returns what is there all the same, a line each: what only root sees of what is left of a job.
    """
    both = [unit, unit.replace("mxcluster-agent@", "mxcluster-firewall@")]
    module.run_command(["systemctl", "stop"] + both)
    module.run_command(["systemctl", "reset-failed"] + both)
    states = module.run_command(["systemctl", "is-active"] + both)[1].split()
    lines = ["unit %s is %s" % (name, state) for name, state in zip(both, states) if state not in ("inactive", "unknown")]
    wish = os.path.join(WISHES, os.path.basename(os.path.abspath(module.params["job_dir"])) + ".json")
    code, out, err = module.run_command([module.params["python"], "-I", "-m", "mxcluster.firewall", "close", wish], cwd="/")
    return lines + [line for line in (out if code == 0 else err or out).splitlines() if line.strip()]


def why_open(module):
    """Why nothing keeps strangers from the ports of jobs on this node, "" if something does."""
    if os.geteuid() != 0 or not module.params["user"]:
        return "jobs run without root here (mxcluster_user is empty), so nothing keeps strangers from their ports"
    if not (os.path.exists(TEMPLATE) and os.path.isdir("/run/systemd/system")):
        return "jobs run without systemd's units here, so nothing keeps strangers from their ports"
    code, out, err = module.run_command([module.params["python"], "-I", "-m", "mxcluster.firewall", "can"], cwd="/")
    return out.strip() if code == 0 else "whether anything keeps strangers from the ports of jobs is not known: %s" % err.strip()


def write_wish(plan, uid):
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


def is_spooled(params):
    """Whether root packs what is another's, or for another."""
    return bool(params["spool"]) and os.geteuid() == 0 and bool(params["user"] or params["reader"])


def collect_into_spool(module):
    """The answer of `collect`, packed by the user into a file that root has made where the user can change nothing.

    Whoever logs in fetches it as who he is. As root, Ansible's fetch would hold all of it in memory, more than once, and root
    would read whatever the user has put there.
    """
    params, spool = module.params, os.path.abspath(module.params["spool"])
    try:
        if not os.path.isdir(spool):
            os.makedirs(spool)
            os.chmod(spool, 0o755)
        found = os.lstat(spool)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
            module.fail_json(msg="%s is not a folder of root's that nobody else can write to: remove it, and try again" % spool)
        # Two controllers may wait for the same job, and each fetches what was packed for it.
        prefix = os.path.basename(os.path.abspath(params["job_dir"])) + "-"
        target, path = tempfile.mkstemp(".tar", prefix, spool)
        fcntl.fcntl(target, fcntl.F_SETFD, 0)  # or else Python 2.7 would not hand it on
    except (IOError, OSError) as error:
        module.fail_json(msg="what the job has left cannot be packed into %s (%s): mend that, and run this again"
                             % (spool, error))
    try:
        answer = run_as(module, argv_for(params, target), pass_fds=[target])
        os.fchown(target, params["reader"] or 0, -1)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(target)
    if answer.get("problem"):
        os.unlink(path)
    return dict(answer, output=path, spooled=not answer.get("problem"))
