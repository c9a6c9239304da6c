"""The supervisor, which starts, watches and ends the processes of a job on one node."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from typing import Callable, Dict, List, Optional, cast

from mxcluster import events, exit_codes
from mxcluster.agent import engine_file, helper, runtimes, stuck_processes
from mxcluster.agent.folder import LEASE, JobFolder
from mxcluster.agent.kept_files import Keeper, Mark, mark
from mxcluster.agent.lease import Lease
from mxcluster.agent.observation import Observer
from mxcluster.agent.out_of_memory import Kills
from mxcluster.errors import of_system
from mxcluster.model import failures
from mxcluster.model.events import Note
from mxcluster.model.plan import NodePlan
from mxcluster.model.plan import Process as PlannedProcess
from mxcluster.model.status import ENDED, RUNNING, Part, Status
from mxcluster.node import firewall, processes, quota

STOPS = {
    signal.SIGTERM: exit_codes.SHUTDOWN,
    signal.SIGINT: "stopped",
    signal.SIGUSR1: "engine",
    signal.SIGUSR2: "peer",
    signal.SIGALRM: "lease",  # from the head of a batch job, which holds the lease of all agents
}  # type: Dict[int, str]  # signal: reason of the stop
SIGNALS = {signal.SIGCHLD, signal.SIGHUP} | set(STOPS)
PERIOD = 0.5  # seconds between checks of the lease; an ended process wakes the loop at once
MOST_PERIOD = 2.0  # the same on a node with a small quota of CPU time
LOOK = 1.0  # seconds between checks of the processes
GRACE = 2.0  # seconds from SIGTERM to SIGKILL
ENGINE_ENDS = 2.0  # timeout for the exit code of the engine's program, in seconds
WAITED = 10.0  # seconds without progress after which the supervisor asks for stack traces
TRACES = 0.5  # seconds for writing the stack traces
NOT_STARTED = 127  # the exit status of shells for a program that cannot be run
RENDEZVOUS = "rendezvous"  # runs before the processes of the plan


class Supervisor:
    """Runs the processes of `plan` to their end, and writes status.json into `folder`.

    `plan` is this node's part of the plan. PR_SET_PDEATHSIG kills a process at the end of the
    *thread* that forked the process. The supervisor therefore has one thread, and no process
    outlives the supervisor. The supervisor adopts orphaned descendants of the processes and reaps
    them.
    """

    def __init__(self, folder: JobFolder, plan: NodePlan) -> None:
        self.folder = folder
        self.plan = plan
        self.me = cast(processes.Identity, processes.identity(os.getpid()))  # not None
        self.secret_env = folder.take_secret_env()
        self.lease = Lease(plan.lease)
        self.runtime = runtimes.of_plan(folder.path, plan, self.me)
        self.children: Dict[int, str] = {}  # pid of a child -> name of the process
        self.observer = Observer(folder.path, plan)
        self.helpers: List[helper.Helper] = []
        self.mute: Dict[str, float] = {}  # peer -> monotonic time of the first missing answer
        self.began, self.looked = time.monotonic(), 0.0
        self.kills = Kills()
        self.ending = False
        self.saved: Optional[Status] = None
        self.written: Mark = None  # the mark of status.json at this agent's last write
        self.kept = Keeper()
        self.status = Status(
            job=plan.job,
            host=plan.host,
            kv=plan.kv,
            agent=self.me.record,
            started=time.time(),
            processes=[
                Part(name=process.name, role=process.role, index=process.index)
                for process in plan.processes
            ],
            rendezvous=Part(name=RENDEZVOUS, role="rendezvous") if plan.rendezvous else None,
        )

    def change(self, name: str, **values: object) -> Part:
        """Set fields of the process `name` in the status, and return its new state."""
        new = self.status.parts()[name].replaced(**values)
        if name == RENDEZVOUS:
            self.status = self.status.replaced(rendezvous=new)
        else:
            parts = [new if part.name == name else part for part in self.status.processes]
            self.status = self.status.replaced(processes=parts)
        return new

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
            if self.plan.rendezvous:
                self.start(rendezvous_process(self.plan.host))
            else:
                self.start_all()
            self.folder.write_status(self.status)
            ready()
            reason = self.watch()
        except Exception as error:  # any error here must leave no process behind
            note(traceback.format_exc())
            why = of_system(error, self.folder.path) if isinstance(error, OSError) else error
            text = "the agent failed: %s. Read agent.log in the job folder" % why
            self.blame(failures.AGENT, text)
            reason = "failed"
        self.end(reason)

    def start_all(self) -> None:
        """Start the processes of the plan one by one, and stop after a failed start."""
        for process in self.plan.processes:
            if not self.status.first_failure:
                self.start(process)
        for start in helper.STARTS:
            try:
                self.helpers += start(self.folder, self.plan, self.in_child)
            except (OSError, subprocess.SubprocessError) as error:
                note("%s does not start, and its work is missing: %s" % (start.__name__, error))

    def start(self, process: PlannedProcess) -> None:
        """Start one process. If the start fails, record the process as failed.

        `process` is the process's entry in the plan.
        """
        name = process.name
        runtime = self.runtime_of(name)
        environment = runtime.kept()
        environment.update(process.env)
        secret_env = {} if name == RENDEZVOUS else self.secret_env
        log = self.folder.open_log(name)
        try:
            self.folder.write_env(process, environment, secret_env)
            environment.update(secret_env)
            child = runtime.popen(process, environment, self.folder.path, log, self.in_child)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = (
                "did not start: %s. If a program is missing, run provision.yml. If memory or disk "
                "space is short, free some on this node. Then run the playbook again" % error
            )
            os.write(log, (reason + "\n").encode("utf-8", "replace"))
            self.ended(name, NOT_STARTED, failures.AGENT, reason)
        else:
            self.children[child.pid] = name
            self.observer.begin(child.pid)
            child.returncode = 0  # reaped by `reap`, not by Popen
            self.recognize(child.pid)
        finally:
            os.close(log)

    def runtime_of(self, name: str) -> runtimes.Runtime:
        """Return the runtime of a process. The rendezvous needs no MXNet, and runs on the host."""
        return runtimes.Host() if name == RENDEZVOUS else self.runtime

    def recognize(self, child: int) -> None:
        """Record the identity of the process of `child`, a pid, as soon as the process runs."""
        name = self.children[child]
        who = self.runtime_of(name).identity(child, name)
        if who:  # a child that is not reaped yet has an identity
            self.change(name, pid=who.pid, start_time=who.start_time)
            note("%s is pid %d" % (name, who.pid))

    def unknown(self) -> List[int]:
        """Return the children of the agent whose processes the agent does not know yet."""
        parts = self.status.parts()
        return [child for child, name in self.children.items() if parts[name].pid is None]

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
        stopped, period = None, period_of(quota.tightest())
        while True:
            self.restore()
            if stopped != exit_codes.SHUTDOWN:
                self.reap()
            for child in self.unknown():
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
                lease = expired if reason == "lease" else None
                self.status = self.status.replaced(lease=lease)
                return reason
            self.save()
            got = signal.sigtimedwait(SIGNALS, period)
            stopped = STOPS.get(got.si_signo) if got else None

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
        path, free, sights = self.folder.path, self.folder.free(), self.sights()
        over = stuck_processes.overtime(self.plan, self.looked - self.began)
        if over:
            self.find(over)
        elif free < stuck_processes.LEAST_FREE:
            self.find(stuck_processes.disk(path, free))
        elif not self.folder.has_inodes():
            self.find(stuck_processes.inodes(path))
        else:
            finding = stuck_processes.examine(sights, self.plan) or self.examine_network(sights)
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
        seconds, now = self.plan.heartbeat.timeout, time.monotonic()
        quiet = seconds and any(
            sight.pulse and sight.still >= seconds for sight in sights if sight.role != "scheduler"
        )
        mute = (
            [peer.name for peer in self.observer.unanswered() if peer.role != "scheduler"]
            if quiet
            else []
        )
        self.mute = {name: self.mute.get(name, now) for name in mute}
        lost = sorted(name for name, since in self.mute.items() if now - since >= seconds)
        if lost:
            self.status = self.status.replaced(unanswered=lost)
        return stuck_processes.network(self.plan.host, lost) if lost else None

    def find(self, finding: stuck_processes.Finding) -> None:
        """Record `finding` as the first failure, unless `blame` keeps an earlier failure."""
        name = finding.name if finding.name in self.children.values() else None
        self.blame(finding.kind, finding.reason, name)

    def sights(self) -> List[stuck_processes.Sight]:
        """Return the observed state (Sight) of each running process."""
        parts = self.status.parts()
        return self.observer.sights(
            {child: parts[name] for child, name in self.children.items()},
            {child: self.runtime_of(name).contained for child, name in self.children.items()},
        )

    def last_sights(self, reason: str) -> None:
        """Save the pulses of all processes, and request stack traces, before the processes end.

        `reason`: the reason why the job ends on this node. After a failure the method also looks
        for a network fault. If `is_open` is True, the method records a stopped process as the first
        failure. The method requests stack traces only if a worker waits (see
        `stuck_processes.has_waiting_worker`).
        """
        seen = self.sights()
        if reason in ("failed", "peer"):
            mute = [peer.name for peer in self.observer.unanswered()]
            self.status = self.status.replaced(unanswered=mute)
            if mute and self.is_open():
                self.find(stuck_processes.network(self.plan.host, mute))
        pulses = {sight.name: sight.pulse for sight in seen if sight.pulse}
        self.status = self.status.replaced(pulses=pulses)
        frozen = {sight.name for sight in seen if sight.frozen}
        for child, since in self.observer.held.items():
            # A stopped process may have been killed since.
            if child in self.children and self.is_open():
                name = self.children[child]
                seconds = time.monotonic() - since
                self.find(stuck_processes.held(name, seconds, name in frozen))
        if stuck_processes.has_waiting_worker(
            seen, min(WAITED, self.plan.timeouts.stall / 2 or WAITED)
        ):
            parts = self.status.parts()
            for name in self.children.values():
                if name != RENDEZVOUS and parts[name].pid:
                    # see `mxcluster.training`
                    processes.send(processes.recorded(parts[name]), signal.SIGUSR1)
            time.sleep(TRACES if self.children else 0)

    def end(self, reason: str) -> None:
        """End all running processes and wait for them. Write the last status with `reason`."""
        note(
            "ending: %s. The longest time between two renewals of the lease was %.1f s"
            % (reason, self.lease.gap or 0.0)
        )
        if reason != "done":
            self.last_sights(reason)
        why = engine_file.why_killed(self.folder, ENGINE_ENDS) if reason == "engine" else None
        if why:
            self.blame(failures.ENGINE, why)
        self.save()  # the controller sees the cause now, before all processes have ended
        self.ending = True
        roots = [self.me] + self.runtime.roots()
        spare = [self.me] + [one.identity for one in self.helpers]
        left = processes.end_groups(roots, GRACE, spare=spare, each_pass=self.reap)
        for one in reversed(self.helpers):  # the reader has work left, and the meter has none
            one.finish(reason)
        for name in self.runtime.clean():
            note("the container %s was left, and is removed" % name)
        self.reap()
        for part in self.status.processes:
            if part.pid is None and part.state == RUNNING:  # the process was never started
                self.change(part.name, state=ENDED, ended_at=time.time(), ended_by="agent")
        self.status = self.status.replaced(
            state=ENDED, reason=reason, ended=time.time(), left=[who.record for who in left]
        )
        with contextlib.suppress(OSError):
            self.copy_firewall_notes()
            self.folder.tidy()  # also frees space on a full disk for the last status
        for _ in range(20):  # a full disk may have space again after the end of the processes
            if self.save():
                break
            time.sleep(0.5)
        note("ended: %s%s" % (reason, ", left: %s" % left if left else ""))

    def copy_firewall_notes(self) -> None:
        """Copy the notes of the job's firewall unit to the job's events, for the report."""
        texts = firewall.notes(self.plan.job)
        if texts:
            log = events.EventLog(self.folder.file(events.FILE), host=self.plan.host)
            for text in texts:
                log.write(Note(text="%s: %s" % (self.plan.host, text)))

    def reap(self) -> None:
        """Reap all ended children and adopted orphans, and record ended processes of the job.

        At a shutdown systemd sends SIGTERM to the agent first and then to the processes, whose end
        is no failure. So while a SIGTERM waits for the agent, the method reaps nothing.
        """
        while True:
            try:
                seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if seen is None or (not self.ending and signal.SIGTERM in signal.sigpending()):
                return
            pid, wait_status = os.waitpid(seen.si_pid, 0)
            if pid in self.children:
                name = self.children.pop(pid)
                code, runtime = exit_codes.of_wait(wait_status), self.runtime_of(name)
                last, is_known = self.folder.log_lines(name, 3), self.status.parts()[name].pid
                if is_known:
                    kind, why = failures.NODE, runtime.why_lost(code, last)
                else:
                    kind, why = failures.AGENT, runtime.why_not_started(code, last)
                self.ended(name, runtime.exit_code(code), kind, why)

    def ended(self, name: str, code: int, kind: str, reason: Optional[str] = None) -> None:
        """Record the end of a process and, if the process has failed, the failure (see `blame`).

        After a successful end of the rendezvous process, the method starts the other processes.
        `name`: the name of the process. `code`: the exit code, or NOT_STARTED after a failed start.
        `kind` and `reason`: the failure of the start or of the runtime, with `reason` None after
        any other end of the process.
        """
        part = self.change(
            name,
            state=ENDED,
            exit_code=code,
            ended_at=time.time(),
            ended_by="agent" if self.ending else "self",
        )
        note("%s %s" % (name, reason or exit_codes.describe(code)))
        if name == RENDEZVOUS and code == 0 and not self.ending:
            self.start_all()
        if code == 0 or self.ending:
            return
        if reason:
            self.blame(kind, reason, name)
            return
        contained = self.runtime_of(name).contained
        why = self.kills.explain(part.pid, contained) if code == -signal.SIGKILL else None
        text = exit_codes.describe(code) + (" from the kernel: %s" % why if why else "")
        self.blame(failures.MEMORY if why else failures.of_code(code), text, name, code)

    def is_open(self) -> bool:
        """Return True if the status has no first failure, or only an echo."""
        known = self.status.first_failure
        return known is None or known.row.is_echo

    def blame(
        self, kind: str, reason: str, name: Optional[str] = None, code: Optional[int] = None
    ) -> None:
        """Record the first failure of this node. Only an echo gives way to another failure.

        `kind`: see `model.failures`. `name`: the failed process, None for the agent and the node.
        `code`: the exit code of the process.
        """
        if self.status.first_failure and not (self.is_open() and not failures.KINDS[kind].is_echo):
            return
        log = self.folder.log_lines(name or "agent")
        failure = failures.of_agent(self.plan.host, kind, reason, time.time(), log)
        if name is not None:
            part = self.status.parts()[name]
            failure = failure.replaced(role=part.role, index=part.index, name=name, exit_code=code)
        self.status = self.status.replaced(first_failure=failure)

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
        self.saved = self.status
        return True


def rendezvous_process(host: str) -> PlannedProcess:
    """Return the rendezvous process on this node, `host`, like a process of the plan.

    The rendezvous process runs before the processes of the plan, at the same addresses.
    """
    return PlannedProcess(
        name=RENDEZVOUS,
        role="rendezvous",
        host=host,
        address="",
        command=[sys.executable, "-u", "-m", "mxcluster.node.rendezvous"],
        env={"MXCLUSTER_JOB_DIR": os.getcwd()},
    )


def period_of(limit: Optional[quota.Quota]) -> float:
    """Return the seconds between two checks: PERIOD, and longer under a quota below one CPU."""
    return min(MOST_PERIOD, PERIOD / min(1.0, limit.cpus)) if limit else PERIOD


def why_end(status: Status, stopped: Optional[str], expired: bool) -> Optional[str]:
    """Return the reason why the job has to end on this node now, or None if the job goes on.

    The result is "failed", "done", `stopped` (a value of STOPS or None) or "lease" (if `expired`).
    The state of the processes has priority over `stopped` and `expired`.
    """
    if status.first_failure:
        return "failed"
    if all(part.state == ENDED for part in status.parts().values()):
        return "done"
    return stopped or ("lease" if expired else None)


def note(text: str) -> None:
    """Write the time and `text` as a line to agent.log (the agent's stderr). Ignore a full disk."""
    try:
        print("%s %s" % (time.strftime("%Y-%m-%d %H:%M:%S"), text), file=sys.stderr, flush=True)
    except OSError:
        pass
