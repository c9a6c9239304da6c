"""The supervisor, which starts, watches and ends the processes of a job on one node."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, cast

from mxcluster import events, exit_codes
from mxcluster.agent import engine_file, runtimes, stuck_processes
from mxcluster.agent.folder import LEASE, JobFolder
from mxcluster.agent.kept_files import Keeper, mark
from mxcluster.agent.lease import Lease
from mxcluster.agent.out_of_memory import Kills
from mxcluster.errors import of_system
from mxcluster.model.events import Note
from mxcluster.model.plan import NodePlan, Peer
from mxcluster.model.plan import Process as PlannedProcess
from mxcluster.node import addresses, firewall, processes
from mxcluster.training import progress_file

Json = Dict[str, Any]

STOPS = {
    signal.SIGTERM: exit_codes.SHUTDOWN,
    signal.SIGINT: "stopped",
    signal.SIGUSR1: "engine",
    signal.SIGUSR2: "peer",
    signal.SIGALRM: "lease",  # from the head of a batch job, which holds the lease of all agents
}  # type: Dict[int, str]  # signal: reason of the stop
SIGNALS = {signal.SIGCHLD, signal.SIGHUP} | set(STOPS)
PERIOD = 0.5  # seconds between checks of the lease; an ended process wakes the loop at once
LOOK = 1.0  # seconds between checks of the processes
GRACE = 2.0  # seconds from SIGTERM to SIGKILL
ENGINE_ENDS = 2.0  # timeout for the exit code of the engine's program, in seconds
WAITED = 10.0  # seconds without progress after which the supervisor asks for stack traces
TRACES = 0.5  # seconds for writing the stack traces
NOT_STARTED = 127  # the exit status of shells for a program that cannot be run
KINDS = {exit_codes.NOT_A_NUMBER: "nan"}
MEETING = {"name": "meeting", "role": "rendezvous", "index": None}
AGENT = {"name": "agent", "role": "agent", "index": None}


class Supervisor:
    """Runs the processes of `plan` to their end, and writes status.json into `folder`.

    `plan` is this node's part of the plan. PR_SET_PDEATHSIG kills a process at the end of the
    *thread* that forked the process. The supervisor therefore has one thread, and no process
    outlives the supervisor. The supervisor adopts orphaned descendants of the processes and reaps
    them.

    `holder` is the process that an engine of the site has started on this node, None without an
    engine. The supervisor ends the node's part of the job when the holder has ended.
    """

    def __init__(
        self, folder: JobFolder, plan: NodePlan, holder: Optional[processes.Identity] = None
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.holder = holder
        self.me = cast(processes.Identity, processes.identity(os.getpid()))  # not None
        self.secret_env = folder.take_secret_env()
        self.lease = Lease(plan.lease)
        self.runtime = runtimes.of_plan(folder.path, plan, self.me)
        self.children = {}  # type: Dict[int, Json]  # pid of a child -> its part of the status
        self.limits = stuck_processes.limits_of(plan)
        self.began = {}  # type: Dict[int, float]  # pid -> monotonic time of the process's start
        self.held = {}  # type: Dict[int, float]  # pid -> monotonic time of the stop by a signal
        self.pulses = {}  # type: Dict[int, Any]  # pid -> (pulse, monotonic time of the last change)
        self.peers = {
            (peer.address, peer.port): peer for peer in plan.peers if peer.host != plan.host
        }
        self.mute = {}  # type: Dict[str, float]  # peer -> monotonic time of the first missing answer
        self.looked = 0.0
        self.kills = Kills()
        self.ending = False
        self.saved = None  # type: Optional[Json]
        self.written = None  # type: Any  # the mark of status.json at this agent's last write
        self.kept = Keeper()
        self.status: Json = {
            "job": plan.job,
            "host": plan.host,
            "kv": plan.kv,
            "agent": self.me._asdict(),
            "state": "running",
            "reason": None,
            "started": time.time(),
            "ended": None,
            "processes": [
                dict(
                    {key: getattr(process, key) for key in ("name", "role", "index")},
                    pid=None,
                    start_time=None,
                    state="running",
                    exit_code=None,
                    ended_at=None,
                    ended_by=None,
                )
                for process in plan.processes
            ],
            "meeting": dict(
                MEETING,
                pid=None,
                start_time=None,
                state="running",
                exit_code=None,
                ended_at=None,
                ended_by=None,
            )
            if plan.meeting
            else None,
            "first_failure": None,
            "lease": None,
            "unanswered": [],
            "left": [],
        }

    def run(self, ready: Callable[[], None]) -> None:
        """Start all processes and return when all processes have ended.

        The method calls `ready()` after it has written the first status.json.
        """
        # The supervisor blocks the signals and waits for them. So no signal between two checks is
        # lost, and no handler interrupts other code.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        processes.set_subreaper()
        try:
            self.kept = Keeper(self.folder.kept())
            self.folder.begin_lease()
            self.folder.take_reserve()
            if self.plan.meeting:
                self.start(meeting_process(self.plan), self.status["meeting"])
            else:
                self.start_all()
            self.folder.write_status(self.status)
            ready()
            reason = self.watch()
        except Exception as error:  # any error here must leave no process behind
            note(traceback.format_exc())
            why = of_system(error, self.folder.path) if isinstance(error, OSError) else error
            self.blame(AGENT, "the agent failed: %s. Read agent.log in the job folder" % why, None)
            reason = "failed"
        self.end(reason)

    def start_all(self) -> None:
        """Start the processes of the plan one by one, and stop after a failed start."""
        for process, part in zip(self.plan.processes, self.status["processes"]):
            if not self.status["first_failure"]:
                self.start(process, part)

    def start(self, process: PlannedProcess, part: Json) -> None:
        """Start one process.

        `process` is the process's entry in the plan, and `part` the process's entry in the status.
        If the start fails, the method records the process as failed.
        """
        runtime = self.runtime_of(part)
        environment = runtime.kept()
        environment.update(process.env)
        secret_env = {} if part is self.status["meeting"] else self.secret_env
        log = self.folder.open_log(process.name)
        try:
            self.folder.write_env(process, environment, secret_env)
            child = runtime.popen(
                process,
                dict(environment, **secret_env),
                cwd=self.folder.path,
                start_new_session=True,
                stdout=log,
                stderr=log,
                preexec_fn=self.in_child,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = (
                "did not start: %s. If a program is missing, run provision.yml. If memory or disk "
                "space is short, free some on this node. Then run the playbook again" % error
            )
            os.write(log, (reason + "\n").encode("utf-8", "replace"))
            self.ended(part, NOT_STARTED, reason)
        else:
            self.children[child.pid] = part
            self.began[child.pid] = time.monotonic()
            child.returncode = 0  # reaped by `reap`, not by Popen
            self.recognize(child.pid)
        finally:
            os.close(log)

    def runtime_of(self, part: Json) -> runtimes.Runtime:
        """Return the runtime of a process. The rendezvous needs no MXNet, and runs on the host."""
        return runtimes.Host() if part is self.status["meeting"] else self.runtime

    def recognize(self, child: int) -> None:
        """Record the identity of the process of `child`, a pid, as soon as the process runs."""
        part = self.children[child]
        who = self.runtime_of(part).identity(child, part)
        if who:  # a child that is not reaped yet has an identity
            part["pid"], part["start_time"] = who
            note("%s is pid %d" % (part["name"], who.pid))

    def in_child(self) -> None:
        """Prepare the child between fork and exec.

        The child dies with the agent, and blocks no signal.
        """
        processes.set_pdeathsig(self.me.pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def watch(self) -> str:
        """Wait until the job has to end on this node, and return the reason (see `why_end`).

        During the wait the method restores files, records ended processes and faults, and writes
        the status.
        """
        stopped = None
        while True:
            self.restore()
            if stopped != exit_codes.SHUTDOWN:
                self.reap()  # at a shutdown systemd ends the processes, too, which is no failure
            for child in [pid for pid, part in self.children.items() if part["pid"] is None]:
                self.recognize(child)
            self.examine()
            expired = self.lease.expired(
                self.folder.lease_mtime(),
                time.time(),
                time.monotonic(),
                processes.lives(self.plan.controller),
            )
            reason = why_end(self.status, stopped, bool(expired))
            if reason:
                self.status["lease"] = expired if reason == "lease" else None
                return reason
            self.save()
            got = signal.sigtimedwait(SIGNALS, PERIOD)
            stopped = STOPS.get(got.si_signo) if got else None
            if self.holder and not processes.alive(self.holder):
                stopped = "engine"

    def restore(self) -> None:
        """Restore files of the job folder that another program has deleted or changed.

        If the folder itself is missing, the method records this fault and makes the folder again.
        """
        try:
            if not os.path.isdir(self.folder.path):
                self.find(stuck_processes.folder(self.folder.path))
                os.makedirs(self.folder.path, 0o700)  # status.json with the reason goes there
            restored = list(self.kept.restore())
            if self.lease.mtime is not None and self.folder.lease_mtime() is None:
                self.folder.begin_lease(self.lease.mtime)
                restored.append(self.folder.file(LEASE))
            for path in restored:
                note("%s was deleted or changed, and the agent has restored the file" % path)
        except OSError as error:
            note("the agent cannot restore a file of the job, and tries again: %s" % error)

    def examine(self) -> None:
        """Check processes, network and disk every LOOK seconds, and record the first fault."""
        if time.monotonic() - self.looked < LOOK or not self.is_open():
            return
        self.looked = time.monotonic()
        self.kills.look(self.looked)
        free = self.folder.free()
        if free < stuck_processes.LEAST_FREE:
            finding: Optional[stuck_processes.Finding] = stuck_processes.disk(
                self.folder.path, free
            )
        elif not self.folder.has_inodes():
            finding = stuck_processes.inodes(self.folder.path)
        else:
            sights = self.sights()
            finding = stuck_processes.examine(
                sights, self.limits, bool(self.plan.root)
            ) or self.examine_network(sights)
        if finding:
            self.find(finding)

    def examine_network(
        self, sights: List[stuck_processes.Sight]
    ) -> Optional[stuck_processes.Finding]:
        """Return the Finding for a network fault between this node and its peers, or None.

        The peers are servers and workers of other nodes. A fault counts only if a process on this
        node makes no progress. Processes send heartbeats to the scheduler only. Heartbeats
        therefore do not show that a worker has lost a server.
        """
        seconds, now = self.limits.stopped, time.monotonic()
        quiet = seconds and any(
            sight.pulse and sight.still >= seconds for sight in sights if sight.role != "scheduler"
        )
        mute = (
            [peer.name for peer in self.unanswered() if peer.role != "scheduler"] if quiet else []
        )
        self.mute = {name: self.mute.get(name, now) for name in mute}
        lost = sorted(name for name, since in self.mute.items() if now - since >= seconds)
        if lost:
            self.status["unanswered"] = lost
        return stuck_processes.network(self.plan.host, lost) if lost else None

    def unanswered(self) -> List[Peer]:
        """Return the peers on other nodes that do not acknowledge data from this node."""
        return (
            [self.peers[where] for where in sorted(addresses.unanswered() & set(self.peers))]
            if self.peers
            else []
        )

    def find(self, finding: stuck_processes.Finding) -> None:
        """Record `finding` as the first failure, unless `blame` keeps an earlier failure."""
        part = next(
            (part for part in self.children.values() if part["name"] == finding.name), AGENT
        )
        self.blame(part, finding.reason, None, finding.kind)

    def sights(self) -> List[stuck_processes.Sight]:
        """Return the observed state (Sight) of each running process."""
        now, seen = time.monotonic(), []
        for pid, part in self.children.items():
            process = part["pid"] or pid
            line = processes.entry(process)
            if line is None:
                continue
            frozen = self.runtime_of(part).contained and processes.is_frozen(process)
            if line.state == processes.HELD or frozen:
                self.held.setdefault(pid, now)
            else:
                self.held.pop(pid, None)
            last = (
                self.pulses[pid][0] if pid in self.pulses else None
            )  # used if the progress file is deleted or damaged
            told = progress_file.read(progress_file.file_of(self.folder.path, part["name"])) or last
            # Only this monotonic clock counts. A suspended node or a changed system time must not
            # look like a stall.
            if pid not in self.pulses or self.pulses[pid][0] != told:
                self.pulses[pid] = told, now
            seen.append(
                stuck_processes.Sight(
                    part["name"],
                    part["role"],
                    now - self.began[pid],
                    now - self.held.get(pid, now),
                    told,
                    now - self.pulses[pid][1],
                    processes.queued(process),
                    frozen,
                )
            )
        return seen

    def last_sights(self, reason: str) -> None:
        """Save the pulses of all processes, and request stack traces, before the processes end.

        `reason`: the reason why the job ends on this node. After a failure the method also looks
        for a network fault. If `is_open` is True, the method records a stopped process as the first
        failure. The method requests stack traces only if a worker waits (see
        `stuck_processes.somebody_waits`).
        """
        seen = self.sights()
        if reason in ("failed", "peer"):
            self.status["unanswered"] = [peer.name for peer in self.unanswered()]
            if self.status["unanswered"] and self.is_open():
                self.find(stuck_processes.network(self.plan.host, self.status["unanswered"]))
        self.status["pulses"] = {sight.name: sight.pulse for sight in seen if sight.pulse}
        frozen = {sight.name for sight in seen if sight.frozen}
        for pid in set(self.held) & set(
            self.children
        ):  # a stopped process may have been killed since
            if self.is_open():
                name = self.children[pid]["name"]
                seconds = time.monotonic() - self.held[pid]
                self.find(stuck_processes.held(name, seconds, name in frozen))
        if stuck_processes.somebody_waits(seen, min(WAITED, self.limits.stall / 2 or WAITED)):
            for part in self.children.values():
                if part is not self.status["meeting"] and part["pid"]:
                    processes.send(
                        processes.Identity(part["pid"], part["start_time"]), signal.SIGUSR1
                    )  # see `mxcluster.training`
            time.sleep(TRACES if self.children else 0)

    def end(self, reason: str) -> None:
        """End all running processes and wait for them. Write the last status with `reason`."""
        note(
            "ending: %s. The longest time between two renewals of the lease was %.1f s"
            % (reason, self.lease.gap or 0.0)
        )
        if reason != "done":
            self.last_sights(reason)
        told = engine_file.why_killed(self.folder, ENGINE_ENDS) if reason == "engine" else None
        if told:
            self.blame(AGENT, told, None, "engine")
        self.save()  # the controller sees the cause now, before all processes have ended
        self.ending = True
        roots = [self.me] + self.runtime.roots()
        left = processes.end_groups(roots, GRACE, spare=[self.me], each_pass=self.reap)
        for name in self.runtime.clean():
            note("the container %s was left, and is removed" % name)
        self.reap()
        for part in self.status["processes"]:
            if part["pid"] is None and part["state"] == "running":  # the process was never started
                part.update(state="ended", ended_at=time.time(), ended_by="agent")
        self.status.update(
            state="ended", reason=reason, ended=time.time(), left=[who._asdict() for who in left]
        )
        with contextlib.suppress(OSError):
            self.tell_of_firewall()
            self.folder.tidy()  # also frees space on a full disk for the last status
        for _ in range(20):  # a full disk may have space again after the end of the processes
            if self.save():
                break
            time.sleep(0.5)
        note("ended: %s%s" % (reason, ", left: %s" % left if left else ""))

    def tell_of_firewall(self) -> None:
        """Copy the notes of the job's firewall unit to the job's events, for the report."""
        texts = firewall.notes(self.plan.job)
        if texts:
            log = events.EventLog(self.folder.file(events.FILE), host=self.plan.host)
            for text in texts:
                log.write(Note(text="%s: %s" % (self.plan.host, text)))

    def reap(self) -> None:
        """Reap all ended children and adopted orphans, and record ended processes of the job."""
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.children:
                part = self.children.pop(pid)
                runtime, code, kind = self.runtime_of(part), exit_code(wait_status), None
                last = self.folder.log_lines(part["name"], 3)
                if part["pid"] is None:
                    why = runtime.why_not_started(code, last)
                else:
                    why = runtime.why_lost(code, last)
                    kind = "node" if why else None
                self.ended(part, runtime.exit_code(code), why, kind)

    def ended(
        self, part: Json, code: int, reason: Optional[str] = None, kind: Optional[str] = None
    ) -> None:
        """Record the end of a process and, if the process has failed, the failure (see `blame`).

        After a successful end of the rendezvous process, the method starts the other processes.
        `part`: the process's entry in the status. `code`: the exit code, or NOT_STARTED after a
        failed start. `reason`: the error of a failed start or of the runtime, else None. `kind`:
        see `failure`.
        """
        part.update(
            state="ended",
            exit_code=code,
            ended_at=time.time(),
            ended_by="agent" if self.ending else "self",
        )
        note("%s %s" % (part["name"], reason or exit_codes.describe(code)))
        if part is self.status["meeting"] and code == 0 and not self.ending:
            self.start_all()
        if code != 0 and not self.ending:
            contained = self.runtime_of(part).contained
            why = self.kills.explain(part["pid"], contained) if code == -signal.SIGKILL else None
            told = (
                "%s from the kernel: %s" % (exit_codes.describe(code), why)
                if why
                else exit_codes.describe(code)
            )
            kind = kind or ("memory" if why else KINDS.get(code))
            self.blame(part, reason or told, None if reason else code, kind)

    def is_open(self) -> bool:
        """Return True if the status has no first failure, or only an echo (see `failure`)."""
        known = self.status["first_failure"]
        return known is None or known["echo"]

    def blame(
        self, part: Json, reason: str, code: Optional[int], kind: Optional[str] = None
    ) -> None:
        """Record the first failure of this node. See `failure` for the arguments.

        An echo is a failure that results from another process's end. A later failure that is not an
        echo replaces a recorded echo. Any other recorded failure stays.
        """
        known, echo = self.status["first_failure"], code in exit_codes.reserved()
        if known is None or known["echo"] and not echo:
            self.status["first_failure"] = failure(
                self.plan.host,
                part,
                reason,
                code,
                time.time(),
                self.folder.log_lines(part["name"]),
                echo,
                kind,
            )

    def save(self) -> bool:
        """Write status.json if the status has changed, or if another program has changed the file.

        Returns False if the write fails. A full disk must not end the supervision.
        """
        path = self.folder.file("status.json")
        if self.status == self.saved and self.written == mark(path):
            return True
        try:
            self.written = self.folder.write_status(self.status)
        except OSError as error:
            note("the agent cannot write status.json, and tries again: %s" % error)
            return False
        self.saved = snapshot(self.status)
        return True


def meeting_process(plan: NodePlan) -> PlannedProcess:
    """Return the rendezvous process, like a process of the plan.

    The rendezvous process runs before the processes of the plan, at the same addresses.
    """
    return PlannedProcess(
        name="meeting",
        role="rendezvous",
        host=plan.host,
        address="",
        command=[sys.executable, "-u", "-m", "mxcluster.node.rendezvous"],
        env={"MXCLUSTER_JOB_DIR": os.getcwd()},
    )


def why_end(status: Json, stopped: Optional[str], expired: bool) -> Optional[str]:
    """Return the reason why the job has to end on this node now, or None if the job goes on.

    The result is "failed", "done", `stopped` (a value of STOPS or None) or "lease" (if `expired`).
    The state of the processes has priority over `stopped` and `expired`.
    """
    parts = status["processes"]
    if status["first_failure"]:
        return "failed"
    if all(
        part["state"] == "ended"
        for part in parts + ([status["meeting"]] if status.get("meeting") else [])
    ):
        return "done"
    return stopped or ("lease" if expired else None)


def failure(
    host: str,
    part: Json,
    reason: str,
    code: Optional[int],
    when: float,
    log: List[str],
    echo: bool = False,
    kind: Optional[str] = None,
) -> Json:
    """Return a description of a failure, the value of "first_failure" in a status.

    `part`: the status entry of the failed process. `reason`: the cause as a string. `code`: the
    exit code, None if the process has not ended. `when`: unix seconds. `log`: the last lines of the
    process's log. `echo`: True if the process ended because another process had ended. A later
    failure with `echo` False replaces such a failure. `kind`: "stopped", "start", "stall", "disk",
    "folder", "network", "memory", "nan", "engine", "batch" or "node" (see `batch_job.failed`), or
    None for any other failure.
    """
    return {
        "host": host,
        "role": part["role"],
        "index": part["index"],
        "name": part["name"],
        "reason": reason,
        "exit_code": code,
        "time": when,
        "log": log,
        "echo": echo,
        "kind": kind,
    }


def exit_code(wait_status: int) -> int:
    """Return the exit code of `wait_status` (see wait(2)).

    A process that a signal killed has minus the signal's number as its exit code.
    """
    return -os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else os.WEXITSTATUS(wait_status)


def snapshot(status: Json) -> Json:
    """Return a copy of `status` that stays the same when the supervisor changes `status`."""
    return dict(
        status,
        processes=[dict(part) for part in status["processes"]],
        meeting=status["meeting"] and dict(status["meeting"]),
    )


def note(text: str) -> None:
    """Write the time and `text` as a line to agent.log (the agent's stderr). Ignore a full disk."""
    try:
        print("%s %s" % (time.strftime("%Y-%m-%d %H:%M:%S"), text), file=sys.stderr, flush=True)
    except OSError:
        pass
