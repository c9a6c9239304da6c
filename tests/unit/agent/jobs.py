"""Jobs of small shell commands under a real agent, as plain processes or in containers."""

import glob
import json
import os
import pathlib
import subprocess
import sys
import time

import mxcluster
from mxcluster.agent.__main__ import run
from mxcluster.agent.folder import JobFolder
from mxcluster.job import replies
from mxcluster.node import processes
from tests import waiting

PACKAGE = os.path.dirname(os.path.dirname(mxcluster.__file__))
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
FAILS_LATER = "until grep -q ready worker-0.log; do sleep 0.05; done; exit 4"
# The agent waits ten minutes for a process that ignores SIGTERM. So no machine is slow enough to
# hide whether an agent waits.
PATIENT = "from mxcluster.agent import supervisor; supervisor.GRACE = 600.0"


def command_line(*argv, stdin="", before="", **environment):
    """Run `python -m mxcluster.agent argv` as a node does; return (exit status, JSON answer).

    `before` is a program that the command's process runs first, such as PATIENT.
    """
    program = "import runpy; runpy.run_module('mxcluster.agent', run_name='__main__')"
    ran = subprocess.run(
        [sys.executable]
        + (["-c", before + "\n" + program] if before else ["-m", "mxcluster.agent"])
        + list(argv),
        stdout=subprocess.PIPE,
        timeout=120,
        input=stdin.encode(),
        env=dict(os.environ, PYTHONPATH=PACKAGE, **environment),
    )
    lines = ran.stdout.decode().splitlines()
    assert len(lines) == 1, ran
    return ran.returncode, json.loads(lines[0])


class Job:
    """One job folder and its agent."""

    def __init__(self, path):
        self.path = str(path)
        self.folder = JobFolder(self.path)
        self.seen = set()

    def plan(self, *commands, lease=None, env=None, meeting=None, peers=None, **more):
        """Write plan.json with one worker per command, and the rendezvous if `meeting` is given.

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
        plan = {
            "schema": 1,
            "job": "job-1",
            "host": "node1",
            "kv": "dist_sync",
            "lease": lease,
            "processes": parts,
        }
        plan.update(more)
        if meeting:
            plan.update(meeting=meeting, peers=peers)
            with open(
                os.open(self.folder.file("token"), os.O_WRONLY | os.O_CREAT, 0o600), "w"
            ) as stream:
                stream.write("t" * 43)
        with open(self.folder.file("plan.json"), "w") as stream:
            json.dump(plan, stream)

    def start(self, *commands, **options):
        """Write the plan, start the agent, and return its first status."""
        environment = dict(options.pop("environment", {}), before=options.pop("before", ""))
        self.plan(*commands, **options)
        code, answer = command_line("start", "--job-dir", self.path, **environment)
        assert code == 0, answer
        self.remember(answer["status"])
        return answer["status"]

    def ask_to_start(self):
        """Start the agent for a plan that exists already."""
        code, answer = command_line("start", "--job-dir", self.path)
        assert code == 0, answer
        self.remember(answer["status"])

    def remember(self, status):
        """Add the agent and its current descendants to `seen`, for `nothing_left`."""
        self.seen |= {self.agent(status)} | set(processes.family([self.agent(status)]))

    @staticmethod
    def agent(status):
        return processes.Identity(**status["agent"])

    def ask(self, *argv):
        """Return the answer to an agent command that must succeed.

        The command runs in the test's own process, since a new one takes longer. The controller
        must accept every answer of a real agent, so this method checks each answer.
        """
        assert argv[0] != "start", "the agent must not be forked from the test process"
        answer = run([argv[0], "--job-dir", self.path] + list(argv[1:]))
        if argv[0] in replies.REPLIES:
            replies.check(argv[0], "node1", answer)
        return answer

    def end(self, seconds=60):
        """Wait for the end of the job and return the last status."""
        status = self.ask("wait", "--seconds", str(seconds))["status"]
        assert status["state"] == "ended", self.evidence()
        return status

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
            status, turns = self.until(self.folder.status), turns + 1
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
            found = [part["pid"] for part in self.folder.status()["processes"]]
            logs = [self.log("worker-%d" % index) for index in range(number)]
            return all(found) and all("ready" in log for log in logs) and found

        return self.until(pids, seconds)
