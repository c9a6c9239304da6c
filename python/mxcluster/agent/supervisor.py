"""The supervisor: parent of a node's processes. It starts them, watches them, and ends them all when one fails."""
import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Optional

from mxcluster import events, exitcodes, firewall, network, processes, pulse
from mxcluster.agent import health
from mxcluster.agent.folder import LEASE, JobFolder
from mxcluster.agent.keep import Keeper, mark
from mxcluster.agent.lease import Lease
from mxcluster.agent.memory import Kills

Json = Dict[str, Any]

STOPS = {signal.SIGTERM: "stopped", signal.SIGINT: "stopped", signal.SIGUSR2: "peer"}  # why a stop is asked for
SIGNALS = {signal.SIGCHLD, signal.SIGHUP} | set(STOPS)
PERIOD = 0.5  # seconds between looks at the lease; an ended process wakes the loop at once
LOOK = 1.0  # seconds between looks at the processes' health
GRACE = 2.0  # seconds from SIGTERM to SIGKILL
WAITED = 10.0  # seconds without progress, after which an end leaves stack traces
TRACES = 0.5  # seconds for writing them
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")  # what processes inherit beside the plan's environment
NOT_STARTED = 127  # as in shells
KINDS = {exitcodes.NOT_A_NUMBER: "nan"}
MEETING = {"name": "meeting", "role": "rendezvous", "index": None}
AGENT = {"name": "agent", "role": "agent", "index": None}


class Supervisor:
    """Runs the processes of `plan` (this node's slice) to their end; status.json in `folder` tells how it goes.

    One thread: PR_SET_PDEATHSIG fires when the *thread* that forked ends, and so the processes live exactly as long
    as this one. Orphans among their descendants become the supervisor's own children, so that none gets lost.
    """

    def __init__(self, folder: JobFolder, plan: Json):
        self.folder = folder
        self.plan = plan
        self.me = processes.identity(os.getpid())
        self.secret_env = folder.take_secret_env()
        self.lease = Lease(float(plan.get("lease") or 0))
        self.children = {}  # type: Dict[int, Json]  # pid -> the process's part of the status
        self.limits = health.limits_of(plan)
        self.began = {}  # type: Dict[int, float]  # pid -> when it was started (monotonic)
        self.held = {}  # type: Dict[int, float]  # pid -> since when it is held by SIGSTOP (monotonic)
        self.pulses = {}  # type: Dict[int, Any]  # pid -> its pulse, and since when it is this one (monotonic)
        self.peers = {(peer["address"], peer["port"]): peer for peer in plan.get("peers") or []
                      if peer["host"] != plan["host"]}
        self.mute = {}  # type: Dict[str, float]  # peer -> since when it acknowledges nothing (monotonic)
        self.looked = 0.0
        self.kills = Kills()
        self.ending = False
        self.saved = None  # type: Optional[Json]
        self.written = None  # type: Any  # the mark of status.json as this agent has written it
        self.kept = Keeper()
        self.status = {
            "job": plan["job"], "host": plan["host"], "kv": plan.get("kv"),
            "agent": self.me._asdict(), "state": "running", "reason": None, "started": time.time(), "ended": None,
            "processes": [dict({key: process[key] for key in ("name", "role", "index")}, pid=None, start_time=None,
                               state="running", exit_code=None, ended_at=None, ended_by=None)
                          for process in plan["processes"]],
            "meeting": dict(MEETING, pid=None, start_time=None, state="running", exit_code=None, ended_at=None, ended_by=None)
            if plan.get("meeting") else None,
            "first_failure": None, "lease": None, "unanswered": [], "left": []}

    def run(self, ready: Callable[[], None]) -> None:
        """Start all and return when all have ended. `ready` is called once the first status.json is written."""
        # Blocked and then waited for: a signal between two looks is not lost, and there are no handlers to race with.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        processes.set_subreaper()
        try:
            self.kept = Keeper(self.folder.kept())
            self.folder.begin_lease()
            self.folder.take_reserve()
            if self.plan.get("meeting"):
                self.start(meeting_process(self.plan), self.status["meeting"])
            else:
                self.start_all()
            self.folder.write_status(self.status)
            ready()
            reason = self.watch()
        except Exception as error:  # whatever goes wrong in here, nothing is left behind
            note(traceback.format_exc())
            self.blame(AGENT, "the agent failed: %s" % error, None)
            reason = "failed"
        self.end(reason)

    def start_all(self) -> None:
        """Start the processes of the plan, up to the first that cannot be started."""
        for process, part in zip(self.plan["processes"], self.status["processes"]):
            if not self.status["first_failure"]:
                self.start(process, part)

    def start(self, process: Json, part: Json) -> None:
        """Start one process; one that cannot be started is one that has failed."""
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment.update(process["env"])
        secret_env = {} if part is self.status["meeting"] else self.secret_env
        log = self.folder.open_log(process["name"])
        try:
            self.folder.write_env(process, environment, secret_env)
            child = subprocess.Popen(process["command"], env=dict(environment, **secret_env), cwd=self.folder.path,
                                     start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     preexec_fn=self.in_child)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = "could not be started: %s" % error
            os.write(log, (reason + "\n").encode("utf-8", "replace"))
            self.ended(part, NOT_STARTED, reason)
        else:
            part["pid"], part["start_time"] = processes.identity(child.pid)
            self.children[child.pid] = part
            self.began[child.pid] = time.monotonic()
            child.returncode = 0  # reaped by `reap`, not by Popen
            note("%s is pid %d" % (part["name"], child.pid))
        finally:
            os.close(log)

    def in_child(self) -> None:
        """Between fork and exec."""
        processes.set_pdeathsig(self.me.pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def watch(self) -> str:
        """Wait until there is a reason to end, and return it: done, failed, stopped, peer or lease."""
        stopped = None
        while True:
            self.restore()
            self.reap()
            self.examine()
            expired = self.lease.expired(self.folder.lease_mtime(), time.time(), time.monotonic(),
                                         processes.lives(self.plan.get("controller")))
            reason = why_end(self.status, stopped, bool(expired))
            if reason:
                self.status["lease"] = expired if reason == "lease" else None
                return reason
            self.save()
            got = signal.sigtimedwait(SIGNALS, PERIOD)
            stopped = STOPS.get(got.si_signo) if got else None

    def restore(self) -> None:
        """Restore the files that other processes read, if somebody has deleted or altered them."""
        try:
            if not os.path.isdir(self.folder.path):
                self.find(health.folder(self.folder.path))
                os.makedirs(self.folder.path, 0o700)  # the reason must be found there
            restored = list(self.kept.restore())
            if self.lease.mtime is not None and self.folder.lease_mtime() is None:
                self.folder.begin_lease(self.lease.mtime)
                restored.append(self.folder.file(LEASE))
            for path in restored:
                note("%s was deleted or altered, and is restored" % path)
        except OSError as error:
            note("a file of the job cannot be restored: %s" % error)

    def examine(self) -> None:
        """Blame what is wrong with processes that live, or with the disk."""
        if time.monotonic() - self.looked < LOOK or not self.is_open():
            return
        self.looked = time.monotonic()
        self.kills.look(self.looked)
        free = self.folder.free()
        if free < health.LEAST_FREE:
            finding = health.disk(self.folder.path, free)
        elif not self.folder.has_inodes():
            finding = health.inodes(self.folder.path)
        else:
            sights = self.sights()
            finding = health.examine(sights, self.limits, bool(self.plan.get("root"))) or self.examine_network(sights)
        if finding:
            self.find(finding)

    def examine_network(self, sights: List[health.Sight]) -> Optional[health.Finding]:
        """What is wrong with the connections to other nodes' servers and workers, if a process here makes no progress.

        The heartbeats go to the scheduler alone: they do not show that a worker has lost a server.
        """
        seconds, now = self.limits.stopped, time.monotonic()
        quiet = seconds and any(sight.pulse and sight.still >= seconds for sight in sights if sight.role != "scheduler")
        mute = [peer["name"] for peer in self.unanswered() if peer["role"] != "scheduler"] if quiet else []
        self.mute = {name: self.mute.get(name, now) for name in mute}
        lost = sorted(name for name, since in self.mute.items() if now - since >= seconds)
        if lost:
            self.status["unanswered"] = lost
        return health.network(self.plan["host"], lost) if lost else None

    def unanswered(self) -> List[Json]:
        """The peers on other nodes that do not acknowledge data of this node."""
        return [self.peers[where] for where in sorted(network.unanswered() & set(self.peers))] if self.peers else []

    def find(self, finding: health.Finding) -> None:
        """Blame a finding."""
        part = next((part for part in self.children.values() if part["name"] == finding.name), AGENT)
        self.blame(part, finding.reason, None, finding.kind)

    def sights(self) -> List[health.Sight]:
        """What is to be seen of the processes that run."""
        now, seen = time.monotonic(), []
        for pid, part in self.children.items():
            line = processes.entry(pid)
            if line is None:
                continue
            if line.state == processes.HELD:
                self.held.setdefault(pid, now)
            else:
                self.held.pop(pid, None)
            last = self.pulses[pid][0] if pid in self.pulses else None  # also if its file is deleted or garbled
            told = pulse.read(pulse.file_of(self.folder.path, part["name"])) or last
            # By this clock alone: a machine that slept, or whose time was set, has not let its processes wait.
            if pid not in self.pulses or self.pulses[pid][0] != told:
                self.pulses[pid] = told, now
            seen.append(health.Sight(part["name"], part["role"], now - self.began[pid], now - self.held.get(pid, now), told,
                                     now - self.pulses[pid][1], processes.queued(pid)))
        return seen

    def last_sights(self, reason: str) -> None:
        """Before all ends: keep how far the processes are, and have those that wait say where."""
        seen = self.sights()
        if reason in ("failed", "peer"):
            self.status["unanswered"] = [peer["name"] for peer in self.unanswered()]
            if self.status["unanswered"] and self.is_open():
                self.find(health.network(self.plan["host"], self.status["unanswered"]))
        self.status["pulses"] = {sight.name: sight.pulse for sight in seen if sight.pulse}
        for pid in set(self.held) & set(self.children):  # one that was held may have been killed since
            if self.is_open():
                self.find(health.held(self.children[pid]["name"], time.monotonic() - self.held[pid]))
        if health.somebody_waits(seen, min(WAITED, self.limits.stall / 2 or WAITED)):
            for pid, part in self.children.items():
                if part is not self.status["meeting"]:
                    processes.send(processes.Identity(pid, part["start_time"]), signal.SIGUSR1)  # see `mxcluster.run`
            time.sleep(TRACES if self.children else 0)

    def end(self, reason: str) -> None:
        """End whatever still runs, wait for it, and write the last status."""
        note("ending: %s; the longest time between two renewals of the lease was %.1f s" % (reason, self.lease.gap or 0.0))
        if reason != "done":
            self.last_sights(reason)
        self.save()  # whoever waits shall know the cause at once, not only when all have ended
        self.ending = True
        left = processes.end_groups([self.me], GRACE, spare=[self.me], each_pass=self.reap)
        self.reap()
        for part in self.status["processes"]:
            if part["pid"] is None and part["state"] == "running":  # its turn to start never came
                part.update(state="ended", ended_at=time.time(), ended_by="agent")
        self.status.update(state="ended", reason=reason, ended=time.time(), left=[who._asdict() for who in left])
        with contextlib.suppress(OSError):
            self.tell_of_firewall()
            self.folder.tidy()  # of a full disk, too, where the last word needs room
        for _ in range(20):  # a full disk may have room again once the processes are gone
            if self.save():
                break
            time.sleep(0.5)
        note("ended: %s%s" % (reason, ", left: %s" % left if left else ""))

    def tell_of_firewall(self) -> None:
        """Put what the holder of the firewall has noted among the job's events, for the report."""
        texts = firewall.notes(self.plan["job"])
        if texts:
            log = events.EventLog(self.folder.file(events.FILE), host=self.plan["host"])
            for text in texts:
                log.write("note", text="%s: %s" % (self.plan["host"], text))

    def reap(self) -> None:
        """Take note of every process that has ended. Adopted orphans are reaped too."""
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.children:
                self.ended(self.children.pop(pid), exit_code(wait_status))

    def ended(self, part: Json, code: int, reason: Optional[str] = None) -> None:
        """Record the end of a process, and whether it is the first cause of the job's.

        `reason` is for one that never was: its code is ours, not its own.
        """
        part.update(state="ended", exit_code=code, ended_at=time.time(), ended_by="agent" if self.ending else "self")
        note("%s %s" % (part["name"], reason or exitcodes.describe(code)))
        if part is self.status["meeting"] and code == 0 and not self.ending:
            self.start_all()
        if code != 0 and not self.ending:
            why = self.kills.explain(part["pid"]) if code == -signal.SIGKILL else None
            told = "%s by the kernel: %s" % (exitcodes.describe(code), why) if why else exitcodes.describe(code)
            self.blame(part, reason or told, None if reason else code, "memory" if why else KINDS.get(code))

    def is_open(self) -> bool:
        """Whether no first cause is known: at most an echo of another process's end."""
        known = self.status["first_failure"]
        return known is None or known["echo"]

    def blame(self, part: Json, reason: str, code: Optional[int], kind: Optional[str] = None) -> None:
        """Make this the node's first failure, unless there is one; an echo of another's end gives way to a cause."""
        known, echo = self.status["first_failure"], code in exitcodes.reserved()
        if known is None or known["echo"] and not echo:
            self.status["first_failure"] = failure(self.plan["host"], part, reason, code, time.time(),
                                                   self.folder.log_lines(part["name"]), echo, kind)

    def save(self) -> bool:
        """Write status.json if the status has changed, or somebody has deleted or altered the file.

        False if the disk is full, which must not end the supervision.
        """
        path = self.folder.file("status.json")
        if self.status == self.saved and self.written == mark(path):
            return True
        try:
            self.written = self.folder.write_status(self.status)
        except OSError as error:
            note("status.json cannot be written: %s" % error)
            return False
        self.saved = snapshot(self.status)
        return True


def meeting_process(plan: Json) -> Json:
    """The process that meets the other nodes' before those of the plan start. It runs as they do, where they will."""
    return dict(MEETING, command=[sys.executable, "-u", "-m", "mxcluster.meeting"], env={"MXCLUSTER_JOB_DIR": os.getcwd()})


def why_end(status: Json, stopped: Optional[str], expired: bool) -> Optional[str]:
    """Why a job has to end on this node now, None if it goes on. What the processes did counts first."""
    parts = status["processes"]
    if status["first_failure"]:
        return "failed"
    if all(part["state"] == "ended" for part in parts + ([status["meeting"]] if status.get("meeting") else [])):
        return "done"
    return stopped or ("lease" if expired else None)


def failure(host: str, part: Json, reason: str, code: Optional[int], when: float, log: List[str], echo: bool = False,
            kind: Optional[str] = None) -> Json:
    """A `first_failure`. `echo`: it ended because another process had, and so gives way to any cause.

    `kind`: "stopped", "start", "stall", "disk", "folder", "network", "memory" or "nan", or None for any other death.
    """
    return {"host": host, "role": part["role"], "index": part["index"], "name": part["name"], "reason": reason,
            "exit_code": code, "time": when, "log": log, "echo": echo, "kind": kind}


def exit_code(wait_status: int) -> int:
    """The exit status of a wait status of wait(2), or minus the signal."""
    return -os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else os.WEXITSTATUS(wait_status)


def snapshot(status: Json) -> Json:
    """A copy of a status that later changes do not touch."""
    return dict(status, processes=[dict(part) for part in status["processes"]],
                meeting=status["meeting"] and dict(status["meeting"]))


def note(text: str) -> None:
    """A line in agent.log (the agent's stderr), if the disk takes it."""
    try:
        print("%s %s" % (time.strftime("%Y-%m-%d %H:%M:%S"), text), file=sys.stderr, flush=True)
    except OSError:
        pass
