"""Carry out root's part of a job: the systemd unit, the firewall request and the archive."""

import contextlib
import json
import os
import pwd
import re
import stat
import tempfile
import time
from typing import Iterator, List, Optional, Set, cast

from mxcluster import calls
from mxcluster.entry import programs
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.file_io import replace
from mxcluster.model.answers import AgentStarted, Collected, Progress
from mxcluster.model.plan import NodePlan
from mxcluster.model.protocol import Collect, Look, OfJob, Prepare, Request, Start, Status, Stop
from mxcluster.model.status import Status as JobStatus
from mxcluster.node import firewall, json_cli, processes

TEMPLATE = "/etc/systemd/system/mxcluster-agent@.service"
PATIENCE = 2.0  # seconds until a process outside of the units counts
UNIT_ENDS = 10  # seconds to wait for the end of a unit
LIVES = ("active", "activating", "deactivating", "reloading")  # states of a unit with processes
PRIVATE = ("/tmp", "/var/tmp")  # a unit with PrivateTmp=yes has its own, empty folders


def has_units(request: Request) -> bool:
    """Return True if jobs run as systemd units on this node.

    Units require root's rights, a training user, systemd, and the unit template of the role
    agent_unit.
    """
    return bool(
        os.geteuid() == 0
        and request.user
        and os.path.exists(TEMPLATE)
        and os.path.isdir("/run/systemd/system")
    )


def hidden(request: Look) -> List[str]:
    """Return [message] if `data_dir` of the request is hidden from jobs in units, else []."""
    path, engine = request.arguments.data_dir, request.arguments.engine
    is_private = (os.path.normpath(path) + "/").startswith(tuple(name + "/" for name in PRIVATE))
    if engine or not is_private or not has_units(request):  # an engine's agents have no unit
        return []
    return [
        "data_dir=%s is hidden from jobs on this node, because a job has its own %s: choose "
        "another folder, such as /srv/data" % (path, " and ".join(PRIVATE))
    ]


def unit_of(request: OfJob) -> Optional[str]:
    """Return the name of the job's systemd unit, or None if the job runs without a unit."""
    is_name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", request.job_id)
    return "mxcluster-agent@%s.service" % request.job_id if is_name and has_units(request) else None


def start(request: Start, unit: str) -> AgentStarted:
    """Start a job as the systemd unit `unit`, and return the first status.

    Only the preparation and the job itself run as the training user. Raises MxclusterError if the
    unit fails, and BadInput without a plan.
    """
    if request.plan is None:  # root cannot trust a plan of the training user
        raise BadInput("the command start needs the plan of the job: add packed_plan to the task")
    programs.commands()  # one import here serves both child processes
    programs.answer_of(request.turned_into(Prepare))
    # Reset failed units of earlier jobs: the agent and the controller were killed together.
    calls.run(["systemctl", "reset-failed", "mxcluster-agent@*", "mxcluster-firewall@*"])
    write_firewall_request(request.plan, pwd.getpwnam(request.user).pw_uid)
    code, out, err = calls.run(["systemctl", "start", unit])
    if code != 0:
        state = calls.run(
            ["systemctl", "status", "--no-pager", "--full", "--output=cat", "--lines=30", unit]
        )[1]
        # Read agent.log as the training user: for root, a link of that name could expose any file.
        path = os.path.join(request.job_dir, "agent.log")
        log = calls.run(["runuser", "-u", request.user, "--", "tail", "-n", "15", path])[1]
        # Remove the prepared job, and secrets that the agent left unread.
        with contextlib.suppress(MxclusterError):  # the error of the start is raised below
            programs.answer_of(request.turned_into(Stop))
        settle(request, unit)
        raise MxclusterError(why_not_started(unit, (err or out).strip(), state, log))
    status = status_of(request)
    return AgentStarted(job=status.job, status=status)


def status_of(request: OfJob) -> JobStatus:
    """Return the status of the job. Raises MxclusterError without a status."""
    return cast(Progress, programs.answer_of(request.turned_into(Status))).status


def why_not_started(unit: str, error: str, state: str, log: str) -> str:
    """Return the error message for a `unit` that failed to start.

    The message has the agent's own error, or without such an error the last lines of output.
    `error`: the error of `systemctl start`. `state`: the output of `systemctl status`. `log`: the
    end of agent.log.
    """
    reason = json_cli.error_in(state.splitlines() + log.splitlines())
    if reason is not None:
        return "%s\n(%s did not start; see `journalctl -u %s` on this node)" % (reason, unit, unit)
    last = [line for line in (log.strip() or state.strip()).splitlines() if line.strip()][-5:]
    return "\n".join(
        [
            "%s did not start (%s): correct the error that `journalctl -u %s` shows on this node, "
            "and run the playbook again"
            % (unit, (error.splitlines() or ["systemctl gave no reason"])[0], unit)
        ]
        + last
    )


def jobs_with_units(request: Request) -> Optional[List[str]]:
    """Return the ids of the jobs whose systemd unit is active, starting or stopping, sorted.

    Returns None if root's rights, a training user or systemd is missing.
    """
    if os.geteuid() != 0 or not request.user or not os.path.isdir("/run/systemd/system"):
        return None
    options = "--all --plain --no-legend --full".split()
    _, out, _ = calls.run(["systemctl", "list-units", *options, "mxcluster-agent@*"])
    rows = [line.split() for line in out.splitlines()]
    found = [
        re.match(r"mxcluster-agent@(.+)\.service$", row[0])
        for row in rows
        if len(row) > 2 and row[2] in LIVES
    ]
    return sorted(match.group(1) for match in found if match)


def untrue_end(request: Collect, unit: str) -> Optional[str]:
    """Return a message if the reason of the job's end contradicts the state of the unit, else None.

    The training user's process gave the reason, in the answer to `wait`. Root compares the reason
    with the state of the systemd unit. The agent ends shortly after its last status. So the
    function waits up to UNIT_ENDS seconds for the end of the unit.
    """
    if not request.reason:
        return None
    deadline = time.monotonic() + UNIT_ENDS
    while True:
        _, out, _ = calls.run(["systemctl", "show", "-p", "ActiveState", "-p", "Result", unit])
        shown = dict(line.partition("=")[::2] for line in out.splitlines())
        state = shown.get("ActiveState", "")
        if state not in LIVES:
            break
        if time.monotonic() > deadline and state == "deactivating":
            break  # the agent has ended; a process of the job may hang in the kernel
        if time.monotonic() > deadline:
            return (
                "the node answered that its part of the job had ended (%s), but %d s later the "
                "unit %s was still %s. A process of %s has forged the answer, and root has ended "
                "the unit. Check the processes of that user"
                % (request.reason, UNIT_ENDS, unit, state, request.user)
            )
        time.sleep(0.03)
    if request.reason == "done" and state == "failed" and shown.get("Result") != "timeout":
        return (
            "the node answered that its part of the job was done, but the agent has failed "
            "(%s: %s). A process of %s has forged the answer: check the processes of that user"
            % (unit, shown.get("Result"), request.user)
        )
    return None


def outside(request: Collect, patience: float = PATIENCE) -> List[str]:
    """Return a message for each process of the training user that has left the unit of the job.

    Such a process began after the job's agent, and is in the unit of no job. A person who works as
    the training user may have started it, so it is no leftover. Processes of jobs without a unit
    have the variable MXCLUSTER_JOB_DIR, and the agent finds them (see `agent.leftovers`). The
    function repeats the search for at most `patience` seconds, until no process of the first search
    is left. An engine of the site starts the whole job without a unit: then the list is empty.
    """
    if request.arguments.engine:
        return []
    uid = pwd.getpwnam(request.user).pw_uid
    try:
        since = status_of(request).agent.start_time
    except MxclusterError:  # the job has not started here
        return []
    deadline = time.monotonic() + patience
    found = None  # type: Optional[List[processes.Identity]]
    while True:
        commands = _of_commands()
        seen = [
            who
            for who in processes.of_user(uid)
            if who.start_time >= since and who.pid not in commands and not _is_of_a_job(who.pid)
        ]
        found = seen if found is None else [who for who in found if who in seen]
        if not found or time.monotonic() >= deadline:
            break
        time.sleep(0.1)
    return [
        "pid %d (%s) of %s runs outside of the job's unit, and began during the job: if no person "
        "has started this process, kill it"
        % (who.pid, processes.command_name(who.pid), request.user)
        for who in found
    ]


def _is_of_a_job(pid: int) -> bool:
    """Return True if the process belongs to a job, or is systemd's manager of the user itself."""
    from mxcluster.agent import runtimes  # not at the top: each poll would import it

    group = processes.read(pid, "cgroup").strip()
    return (
        b"/mxcluster-agent@" in group
        or processes.variable(pid, runtimes.VARIABLE) is not None
        or re.search(rb"/user@\d+\.service/init\.scope$", group) is not None
    )


def _of_commands() -> Set[int]:
    """Return the pids of the processes that carry out commands of the controller.

    These are root's processes of this program, with all processes above and below. Above are the
    shell and sudo of Ansible, which belong to the login user. Below are a part that runs as the
    training user, and the ssh of `verify.yml`.
    """
    lines = processes.table()
    parents = {line.pid: line.parent for line in lines}

    def chain(pid: int) -> Iterator[int]:
        while pid in parents:
            yield pid
            pid = parents[pid]

    roots = {os.getpid()} | {
        pid
        for pid in parents
        if processes.uid(pid) == 0 and b"mxcluster.entry" in processes.read(pid, "cmdline")
    }
    return {above for root in roots for above in chain(root)} | {
        pid for pid in parents if not roots.isdisjoint(chain(pid))
    }


def settle(request: OfJob, unit: str) -> List[str]:
    """End the systemd units of an ended job, and remove the job's firewall rules in any case.

    Returns a message for each unit and firewall rule that is still there. Only root can list units
    and rules.
    """
    both = [unit, unit.replace("mxcluster-agent@", "mxcluster-firewall@")]
    calls.run(["systemctl", "stop"] + both)
    calls.run(["systemctl", "reset-failed"] + both)
    states = calls.run(["systemctl", "is-active"] + both)[1].split()
    lines = [
        "the unit %s on this node is still %s: run stop.yml again for this job, or reboot the node"
        % (name, state)
        for name, state in zip(both, states)
        if state not in ("inactive", "unknown")
    ]
    try:
        return lines + firewall.close(os.path.join(firewall.FOLDER, request.job_id + ".json"))
    except Exception as error:  # no error here may prevent the end of the job
        return lines + [
            "cannot remove the firewall rules of the job in %s (%s: %s): run stop.yml again for "
            "this job" % (request.job_dir, type(error).__name__, error)
        ]


def why_open(request: Request) -> str:
    """Return "" if a firewall on this node can close job ports, else a message.

    The message gives the reason why other hosts can reach job ports, and the cure.
    """
    if os.geteuid() != 0 or not request.user:
        return (
            "jobs run without root here (mxcluster_user is empty, or Ansible connects as this "
            "user), so no firewall protects job ports: close the ports with your own firewall"
        )
    if not (os.path.exists(TEMPLATE) and os.path.isdir("/run/systemd/system")):
        return (
            "jobs run without systemd units on this node, so no firewall protects job ports: start "
            "systemd, and run provision.yml, which installs the units"
        )
    try:
        return firewall.can()
    except Exception as error:  # training goes on after any error here
        return (
            "the state of the firewall for job ports is unknown (%s: %s): repair the firewall "
            "program" % (type(error).__name__, error)
        )


def write_firewall_request(plan: NodePlan, uid: int) -> None:
    """Write the firewall request of the plan, if any, to a file that only root can change.

    `plan`: the node's part of the plan. `uid`: the uid of the training user.
    """
    os.makedirs(firewall.FOLDER, exist_ok=True)
    os.chmod(firewall.FOLDER, 0o755)  # under any umask: agents read the firewall's notes there
    if plan.firewall:
        path = os.path.join(firewall.FOLDER, plan.firewall.job + ".json")
        replace(path, json.dumps(plan.firewall.replaced(uid=uid).encode()))


def is_spooled(request: Collect) -> bool:
    """Return True if root packs the job's files into the folder of the request's spool.

    Root does so if the training user or the login user is another user than root.
    """
    return bool(request.spool) and os.geteuid() == 0 and bool(request.user or request.reader)


def collect_into_spool(request: Collect) -> Collected:
    """Pack the job's files into a new tar file in the folder of the request's spool.

    Root makes the tar file, and the training user fills the file. Only root can change the folder.
    The login user fetches the file with the login user's rights. A fetch as root would have two
    faults. Ansible would hold several copies of the whole file in memory. Root would also read any
    file that the training user put in place of the archive.

    Returns the agent's answer with the path of the tar file, also if no file was packed. Raises
    MxclusterError if root cannot make the folder or the file.
    """
    spool = str(request.spool)
    try:
        if not os.path.isdir(spool):
            os.makedirs(spool)
            os.chmod(spool, 0o755)
        found = os.lstat(spool)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
            raise MxclusterError(
                "%s on this node must be a folder that belongs to root and that only root can "
                "write to: remove this path, and run the playbook again" % spool
            )
        # Two controllers may wait for the same job. Each controller fetches a file of its own.
        target, path = tempfile.mkstemp(".tar", request.job_id + "-", spool)
    except OSError as error:
        raise MxclusterError(
            "cannot pack the job's files into %s on this node (%s): free disk space, or correct "
            "the owner or the rights of this path. Then fetch the files with train.yml -e attach=%s"
            % (spool, error.strerror or error, request.job_id)
        ) from error
    try:
        # The writer closes its descriptor.
        answer = cast(Collected, programs.answer_of(request, os.dup(target)))
        os.fchown(target, request.reader or 0, -1)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(target)
    if answer.problem:
        os.unlink(path)
    return answer.replaced(output=path, spooled=not answer.problem)
