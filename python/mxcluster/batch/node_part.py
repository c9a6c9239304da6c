"""Run one node's part of a batch job: `python -I -m mxcluster.batch.node_part JOB_FOLDER`.

The batch system starts this program on each node. Its stdin and stdout are connected to the head.
Each line is a JSON object:

    {"ask": "record", "nonce": text}   -> {"record": facts}
    {"ask": "look", "request": {...}}  -> {"look": answer of the probe}
    {"ask": "start", "plan": ..., "secret_env": bool}
                                       -> {"wait": status of the agent}, every second
    {"ask": "stop", "reason": text}    ends the agent with this reason

The program reads the script, the token and the secrets ("secret_env": whether there are any) from
the job folder, which all nodes share. The lines cross the network in plain text, so they hold
neither the token nor a secret. After an error the answer is {"error": text}. The last line is
{"left": leftovers on this node}. The agent is a child of this program. Without the head, stdin
ends, and the program ends the agent.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from typing import Any, Dict, List, Optional

from mxcluster import exit_codes, seal
from mxcluster.agent import batch_job, claims, commands, daemon, leftovers
from mxcluster.agent.folder import JobFolder
from mxcluster.agent.supervisor import STOPS, note
from mxcluster.errors import BadInput, MxclusterError, of_system
from mxcluster.job import checkpoints
from mxcluster.model.plan import NodePlan
from mxcluster.model.protocol import RecordNode
from mxcluster.node import gpus, processes
from mxcluster.node.probe import look

Json = Dict[str, Any]

NONCE = "nonce"  # a file in the job folder, which every node must be able to read
PERIOD = 1.0  # seconds between two answers about a running job
HELD = 5.0  # seconds for which SIGSTOP may stop the agent, as in a poll of the controller
# Files of the shared job folder to which each node's folder gets a link.
SHARED = (checkpoints.FOLDER, checkpoints.RESUMED, "model.params")


class NodePart:
    """This node's part of the job in the folder `job_dir`. `answers`: the stream for answers."""

    def __init__(self, job_dir: str, answers: Any):
        self.job_dir = job_dir
        self.answers = answers
        self.folder = None  # type: Optional[JobFolder]
        self.agent = None  # type: Optional[subprocess.Popen]
        self.asked = b""
        self.reason = "failed"  # why the agent ends, if the agent cannot say so
        self.ending = None  # type: Optional[float]  # monotonic time of the first signal to the agent
        self.held = None  # type: Optional[float]  # monotonic time since which the agent is stopped
        self.killed = exit_codes.AGENT_KILLED

    def run(self) -> None:
        """Answer the head until the head or the agent has ended."""
        open_ = True
        while True:
            ready = select.select([0] if open_ else [], [], [], PERIOD)[0]
            if ready:
                open_ = self.read()
                if not open_:
                    self.end("peer")
            if self.agent is not None:
                self.kill_if_stuck()
                ended, status = self.agent.poll() is not None, self.status()
                self.tell({"wait": status})
                if ended:
                    if status is None and self.folder:
                        lines = self.folder.log_lines("agent") or ["(no output)"]
                        self.tell({"error": "the agent did not start: %s" % lines[-1]})
                    self.tell({"left": leftovers.look(self.folder) if self.folder else []})
                    return
            elif not open_:
                return

    def read(self) -> bool:
        """Carry out the requests that have arrived. Return False after the end of the head."""
        piece = os.read(0, 1 << 16)
        self.asked += piece
        *lines, self.asked = self.asked.split(b"\n")
        for line in lines:
            try:
                asked = json.loads(line.decode())
                found = {
                    "record": self.record,
                    "look": self.look,
                    "start": self.start,
                    "stop": self.stop,
                }[asked["ask"]](asked)
            except MxclusterError as error:
                found = {"error": str(error)}
            except OSError as error:
                found = {"error": of_system(error, self.job_dir)}
            except Exception as error:  # the head must hear the cause
                note(traceback.format_exc())
                found = {
                    "error": "the program of mxcluster on this node failed: %s: %s (see batch.log)"
                    % (type(error).__name__, error)
                }
            if found:
                self.tell(found)
        return bool(piece)

    def tell(self, answer: Json) -> None:
        """Send `answer` to the head. Without the head, end the agent."""
        try:
            self.answers.write(json.dumps(answer) + "\n")
            self.answers.flush()
        except (OSError, ValueError):
            self.end("peer")

    def record(self, asked: Json) -> Json:
        """Return the facts of this node, and the GPUs that the batch system gives to the job.

        BadInput if the node does not share the job folder.
        """
        path = os.path.join(self.job_dir, NONCE)
        try:
            with open(path, encoding="ascii") as stream:
                same = stream.read() == asked["nonce"]
        except OSError:
            same = False
        if not same:
            raise BadInput(
                "%s is not the file that the first node has written, but all nodes must share this "
                "folder: set mxcluster_home to a folder of a shared file system" % path
            )
        done = probe()
        try:
            found = json.loads(done.stdout.decode().splitlines()[-1])
        except (IndexError, ValueError):
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise MxclusterError(
                "`%s -m mxcluster.entry` (record) ended with status %d: %s"
                % (sys.executable, done.returncode, lines[-1] if lines else "(no output)")
            ) from None
        if "error" in found:
            raise MxclusterError(str(found["error"]))
        return {"record": dict(found, granted=gpus.granted(os.environ))}

    def look(self, asked: Json) -> Json:
        """Return the answer of `probe.look` to asked["request"]."""
        return {"look": look(asked["request"], claims.held)}

    def start(self, asked: Json) -> None:
        """Write this node's part of the plan and start the agent."""
        plan = NodePlan.decode(asked["plan"])
        self.folder = JobFolder(plan.nodes[plan.host].job_dir)
        self.folder.make()
        os.makedirs(os.path.join(self.job_dir, checkpoints.FOLDER), exist_ok=True)
        for name in SHARED:
            if os.path.exists(os.path.join(self.job_dir, name)):
                os.symlink(os.path.join(self.job_dir, name), self.folder.file(name))
        shared = JobFolder(self.job_dir)
        secret_env = shared.read_secret_env() if asked["secret_env"] else None
        token = seal.read_token(shared.path).decode()
        daemon.prepare(self.folder, plan, secret_env, token, batch_job.script_of(shared))
        me = os.getpid()
        log = self.folder.open_log("agent")
        self.agent = subprocess.Popen(
            [sys.executable, "-I", "-m", "mxcluster.agent", "run", "--job-dir", self.folder.path],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: processes.set_pdeathsig(me, signal.SIGTERM),
        )
        os.close(log)

    def stop(self, asked: Json) -> None:
        """End the agent."""
        self.end(asked["reason"])

    def end(self, reason: str) -> None:
        """End the agent if it runs. `reason`: the reason of the head, see `exit_codes.REASONS`."""
        signals = {told: signum for signum, told in STOPS.items()}
        self.send(signals.get(reason, signals["peer"]))

    def send(self, signum: int) -> None:
        """Send the signal `signum` to the agent if it runs."""
        if self.agent is not None and self.agent.poll() is None:
            if self.ending is None:
                self.ending, self.reason = time.monotonic(), STOPS[signum]
            self.agent.send_signal(signum)

    def kill_if_stuck(self) -> None:
        """Kill an agent that SIGSTOP has stopped, or that does not end after a signal.

        The agent's processes die with the agent. A stopped agent can neither supervise the job nor
        record its end.
        """
        if self.agent is None or self.agent.poll() is not None:
            return
        now, who = time.monotonic(), processes.identity(self.agent.pid)
        is_held = who is not None and processes.is_held(who)
        self.held = (self.held or now) if is_held else None
        late = self.ending is not None and now - self.ending > commands.STOP_TIMEOUT
        if self.held and (self.ending or now - self.held >= HELD):
            self.killed = exit_codes.AGENT_HELD
        elif not late:
            return
        self.agent.kill()
        self.agent.wait()

    def status(self) -> Optional[Json]:
        """Return the status of this node's part, None before the agent has written one."""
        if self.folder is None or self.folder.status() is None:
            return None
        return commands.look(self.folder, True, self.reason, self.killed)


def probe() -> Any:
    """Ask for the facts of this node, in a process of its own: MXNet would stay in the memory."""
    return subprocess.run(
        [sys.executable, "-I", "-m", "mxcluster.entry"],
        input=RecordNode().to_bytes(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def main(argv: List[str]) -> None:
    """Run the part of the job in the folder argv[0]."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to the log of the head
    part = NodePart(argv[0], answers)
    # If the batch system ends the job or the node goes down, a signal reaches this program.
    signal.signal(signal.SIGTERM, lambda *_: part.send(signal.SIGTERM))
    for warning in (signal.SIGUSR1, signal.SIGUSR2):  # Grid Engine warns before it ends a job
        signal.signal(warning, lambda *_: None)
    try:
        part.run()
    finally:
        part.end("peer")
        if part.agent is not None:
            while part.agent.poll() is None:
                part.kill_if_stuck()
                time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1:])
