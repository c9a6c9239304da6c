"""Jobs of small shell commands under a real agent, as plain processes or in containers."""

import glob
import json
import os
import pathlib
import subprocess
import sys
import time

import mxcluster
from mxcluster.agent import commands
from mxcluster.agent.folder import JobFolder
from mxcluster.entry.commands import carry_out
from mxcluster.model import protocol
from mxcluster.model.status import Status
from mxcluster.node import processes
from tests import waiting
from tests.plans import part_json

PACKAGE = os.path.dirname(os.path.dirname(mxcluster.__file__))
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
FAILS_LATER = "until grep -q ready worker-0.log; do sleep 0.05; done; exit 4"
# The agent waits ten minutes for a process that ignores SIGTERM. So no machine is slow enough to
# hide whether an agent waits.
PATIENT = "from mxcluster.agent import supervisor; supervisor.GRACE = 600.0"


def request(command, **fields):
    """Return the checked request for a command."""
    return protocol.COMMANDS[command].decode(fields)


def files(plan, **more):
    """Return the files of a job (see `JobFolder.prepare`)."""
    return protocol.Prepare(job_dir="/jobs/job-1", plan=plan, **more)


def ask(command, **fields):
    """Carry out a command in this process, and return the answer."""
    return carry_out(request(command, **fields)).encode()


def checked(command, answer, host="node1"):
    """Return the answer as the controller checks it."""
    return protocol.COMMANDS[command].ANSWER.decode(answer).of_host(host).encode()


def begin(command, environment=None, **fields):
    """Return a process that carries out a command as on a node, with the request on stdin."""
    made = subprocess.Popen(
        [sys.executable, "-m", "mxcluster.entry"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=PACKAGE, **(environment or {})),
    )
    made.stdin.write(request(command, **fields).to_bytes())
    made.stdin.close()
    return made


def answer_of(process):
    """Return (exit status, JSON answer) of a process of `begin`."""
    lines = process.stdout.read().decode().split("\n")
    process.stdout.close()
    code = process.wait(timeout=120)
    [line] = filter(None, lines)
    return code, json.loads(line)


def in_a_process(command, **given):
    """Carry out a command as on a node; return (exit status, JSON answer). See `begin`."""
    return answer_of(begin(command, **given))


class Job:
    """One job folder and its agent."""

    def __init__(self, path):
        self.path = str(path)
        self.folder = JobFolder(self.path)
        self.seen = set()

    def plan(self, *commands, lease=0, env=None, rendezvous=None, peers=None, **more):
        """Write plan.json with one worker per command, and the rendezvous if `rendezvous` is given.

        A command is a text for sh or an argv list. `more` are other fields of the plan.
        """
        parts = [
            {
                "name": "worker-%d" % index,
                "role": "worker",
                "index": index,
                "command": ["sh", "-c", command] if isinstance(command, str) else command,
                "env": env or {},
            }
            for index, command in enumerate(commands)
        ]
        if rendezvous:
            more.update(rendezvous=rendezvous, peers=peers)
            with open(
                os.open(self.folder.file("token"), os.O_WRONLY | os.O_CREAT, 0o600), "w"
            ) as stream:
                stream.write("t" * 43)
        plan = part_json(*parts, job=os.path.basename(self.path), lease=lease, **more)
        with open(self.folder.file("plan.json"), "w") as stream:
            json.dump(plan, stream)

    def start(self, *commands, environment=None, **options):
        """Write the plan, start the agent, and return its first status."""
        self.plan(*commands, **options)
        code, answer = in_a_process("start", job_dir=self.path, environment=environment)
        assert code == 0, answer
        self.remember(answer["status"])
        return answer["status"]

    def start_patient(self, *commands):
        """Start the job under an agent with PATIENT, and return the status."""
        return self.start_changed(PATIENT, *commands)

    def start_changed(self, program, *commands):
        """Write the plan, start an agent that runs the Python code `program` first.

        Returns the first status.
        """
        self.plan(*commands)
        program += "\nimport runpy; runpy.run_module('mxcluster.agent', {}, '__main__')"
        subprocess.Popen(
            [sys.executable, "-c", program, "run", "--job-dir", self.path],
            stdout=subprocess.DEVNULL,
            env=dict(os.environ, PYTHONPATH=PACKAGE),
        )
        status = self.until(self.folder.status)
        self.remember(status)
        return status

    def ask_to_start(self):
        """Start the agent for a plan that exists already."""
        code, answer = in_a_process("start", job_dir=self.path)
        assert code == 0, answer
        self.remember(answer["status"])

    def remember(self, status):
        """Add the agent and its current descendants to `seen`, for `nothing_left`."""
        self.seen |= {self.agent(status)} | set(processes.family([self.agent(status)]))

    @staticmethod
    def agent(status):
        known = status if isinstance(status, Status) else Status.decode(status)
        return processes.recorded(known.agent)

    def ask(self, command, **fields):
        """Return the answer to a command that must succeed.

        The command runs in the test's own process, since a new one takes longer. The controller
        must accept every answer of a real agent, so this method checks each answer.
        """
        assert command != "start", "the agent must not be forked from the test process"
        answer = ask(command, job_dir=self.path, **fields)
        checked(command, answer)
        return answer

    def end(self, seconds=60):
        """Wait for the end of the job, without renewals of the lease; return the last status."""

        def ended():
            status = commands.look(self.folder, tidy=True)
            return status.has_ended and status

        status = self.until(ended, seconds)
        checked("wait", commands.with_progress(self.folder, status).encode())
        return status.encode()

    def status(self):
        """Return the present status as JSON, None without a status."""
        known = self.folder.status()
        return known and known.encode()

    def until(self, condition, seconds=60.0):
        """Wait for condition() and return its value."""
        return waiting.until(condition, seconds, self.evidence, pause=0.02)

    def looks(self, seconds=0.0):
        """Wait until the agent has gone on for `seconds` and two turns; return its status.

        In each turn the agent writes a deleted status.json again. An agent that ends the job does
        so once before the end and once with the state "ended", so the second file tells the two
        apart. In 1.5 s the agent also looks at its processes (LOOK).
        """
        began, turns, path = time.time(), 0, self.folder.file("status.json")
        while True:
            os.unlink(path)
            status, turns = self.until(self.status), turns + 1
            written = os.stat(path).st_mtime - began
            if status["state"] == "ended" or turns > 1 and written >= seconds:
                return status

    def nothing_left(self):
        """Return True once every process in `seen` is gone; the agent needs a moment to exit."""
        self.until(lambda: not [who for who in self.seen if processes.alive(who)])
        return True

    def log(self, name):
        with open(self.folder.file(name + ".log")) as stream:
            return stream.read()

    def evidence(self):
        """Return the status and the end of each log as text."""
        names = glob.glob(self.folder.file("status.json")) + glob.glob(self.folder.file("*.log"))
        return "\n".join(
            "%s:\n%s" % (name, pathlib.Path(name).read_text(errors="replace")[-4000:])
            for name in names
        )


class Contained(Job):
    """A job of one worker per command, each in a container of `image` under `engine`."""

    engine, image = "docker", "localhost/test"

    def plan(self, *commands, env=None, **options):
        super().plan(*commands, **options)
        with open(self.folder.file("plan.json")) as stream:
            plan = json.load(stream)
        for part in plan["processes"]:
            part["env"] = dict(env or {}, MXCLUSTER_JOB_DIR=self.path)
        plan["container"] = {"engine": self.engine, "image": self.image, "python": "python3"}
        plan["nodes"] = {plan["host"]: {"mounts": []}}
        with open(self.folder.file("plan.json"), "w") as stream:
            json.dump(plan, stream)

    def running(self, number, seconds=60):
        """Wait until `number` workers have written "ready", and return their pids on the node."""

        def pids():
            found = [part.pid for part in self.folder.status().processes]
            logs = [self.log("worker-%d" % index) for index in range(number)]
            return all(found) and all("ready" in log for log in logs) and found

        return self.until(pids, seconds)
