"""Jobs of small shell commands under a real agent, as plain processes or in containers."""

import json
import os
import subprocess
import sys
import time

import mxcluster
from mxcluster.agent.__main__ import run
from mxcluster.agent.folder import JobFolder
from mxcluster.job import replies
from mxcluster.node import processes

PACKAGE = os.path.dirname(os.path.dirname(mxcluster.__file__))


def command_line(*argv, stdin="", **environment):
    """Run `python -m mxcluster.agent argv` as a node does; return (exit status, JSON answer)."""
    ran = subprocess.run(
        [sys.executable, "-m", "mxcluster.agent"] + list(argv),
        stdout=subprocess.PIPE,
        timeout=30,
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

    def plan(self, *commands, lease=None, env=None, meeting=None, peers=None):
        """Write plan.json with one worker per command, and the rendezvous if `meeting` is given.

        A command is a text for sh or an argv list.
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
        environment = options.pop("environment", {})
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

    def end(self, seconds=8):
        """Wait for the end of the job and return the last status."""
        status = self.ask("wait", "--seconds", str(seconds))["status"]
        assert status["state"] == "ended", self.evidence(status)
        return status

    def until(self, condition, seconds=5.0):
        """Wait for condition() and return its value."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError(
            "%s s were not enough; %s" % (seconds, self.evidence(self.folder.status()))
        )

    def nothing_left(self):
        """Return True once every process in `seen` is gone; the agent needs a moment to exit."""
        self.until(lambda: not [who for who in self.seen if processes.alive(who)])
        return True

    def log(self, name):
        with open(self.folder.file(name + ".log")) as stream:
            return stream.read()

    def evidence(self, status):
        return "%s\nagent.log:\n%s" % (
            json.dumps(status, indent=1),
            "\n".join(self.folder.log_lines("agent")),
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
