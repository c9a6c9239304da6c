# -*- coding: utf-8 -*-
"""What root does for a job of the training user's: its systemd unit, its wish to the firewall, and the file it is packed into."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import os
import re
import stat

from ansible.module_utils.mxcluster_agent import argv_for, run_as, told_to_start, with_secrets

TEMPLATE = "/etc/systemd/system/mxcluster-agent@.service"
WISHES = "/run/mxcluster"

def unit_of(params):
    """The systemd unit of a job, None if it is not to be one: without root, without systemd, without the role agent_unit."""
    if os.geteuid() != 0 or not params["user"] or not (os.path.exists(TEMPLATE) and os.path.isdir("/run/systemd/system")):
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
    write_wish(params["plan"])
    code, out, err = module.run_command(["systemctl", "start", unit])
    if code != 0:
        state = module.run_command(["systemctl", "status", "--no-pager", "--lines=15", unit])[1]
        # As the user, whose file it is: root would follow it wherever it leads.
        log = os.path.join(os.path.abspath(params["job_dir"]), "agent.log")
        state += module.run_command(["runuser", "-u", params["user"], "--", "tail", "-n", "15", log])[1]
        # What was prepared goes, and the secrets that no agent has taken.
        module.run_command(["runuser", "-u", params["user"], "--"] + agent + ["stop"] + there, cwd="/")
        settle_unit(module, unit)
        module.fail_json(msg="%s did not start: %s\n%s" % (unit, (err or out).strip(), state.strip()))
    answer = run_as(module, agent + ["status"] + there)
    status = answer["status"]
    return dict(job=status["job"], pid=status["agent"]["pid"], status=status)


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


def write_wish(plan):
    """What the firewall is to let in: root's file, which the training user cannot change."""
    if not os.path.isdir(WISHES):
        os.mkdir(WISHES, 0o755)
    path = os.path.join(WISHES, plan["job"] + ".json")
    with open(path + ".part", "w") as target:
        json.dump(plan["firewall"], target)
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
    path = os.path.join(spool, os.path.basename(os.path.abspath(params["job_dir"])) + ".tar")
    try:
        if not os.path.isdir(spool):
            os.makedirs(spool)
            os.chmod(spool, 0o755)
        found = os.lstat(spool)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
            module.fail_json(msg="%s is not a folder of root's that nobody else can write to: remove it, and try again" % spool)
        if os.path.lexists(path):
            os.unlink(path)  # of somebody who was cut off
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except (IOError, OSError) as error:
        module.fail_json(msg="what the job has left cannot be packed into %s (%s): mend that, and run this again" % (path, error))
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
