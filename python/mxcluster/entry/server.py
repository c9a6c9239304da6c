"""Carry out the requests of the head of a batch job: `python -I -m mxcluster.entry --serve`.

The batch system starts this program on each node of the job. The head writes a request (see
`mxcluster.model.protocol`) as a line to stdin. This program answers with a line, a `Reply`.
Without the head, stdin ends, and this program ends the agents that it has started.
"""

import json
import os
import select
import signal
import subprocess
import sys
from typing import List, Optional, TextIO, cast

from mxcluster.agent import commands
from mxcluster.agent.folder import JobFolder
from mxcluster.agent.supervisor import note
from mxcluster.entry.commands import carry_out
from mxcluster.errors import DAMAGED, MxclusterError
from mxcluster.model import protocol
from mxcluster.model.answers import Answer, Recorded
from mxcluster.node import json_cli, processes

PERIOD = 1.0  # seconds between two looks at a job, whose folder all nodes read over the network


class Server:
    """Answers the requests on stdin in their order. `answers`: the stream for the answers."""

    def __init__(self, answers: TextIO) -> None:
        self.answers = answers
        self.jobs: List[str] = []  # the folders of the jobs that this program has started
        self._input = b""

    def run(self) -> None:
        """Answer requests until stdin ends. Then end the agents."""
        try:
            while True:
                line = self.next_line()
                if line is None:
                    break
                self.answer(line)
        except OSError as error:  # the head has closed the pipe of the answers
            note("cannot answer the head: %s" % error)
        finally:
            self.end()

    def next_line(self) -> Optional[bytes]:
        """Return the next line of stdin, None after the end of stdin."""
        while b"\n" not in self._input:
            piece = os.read(0, 1 << 16)
            if not piece:
                return None
            self._input += piece
        line, _, self._input = self._input.partition(b"\n")
        return line

    def answer(self, line: bytes) -> None:
        """Carry out the request in `line`, and send the answer."""
        reply, _ = json_cli.of(lambda: self.reply_to(protocol.read(line)).encode())
        self.answers.write(json.dumps(reply) + "\n")
        self.answers.flush()

    def reply_to(self, request: protocol.Request) -> protocol.Reply:
        """Carry out `request`, and return the reply, also after an error."""
        found, code = json_cli.of(lambda: self.carry_out(request).encode())
        if code:
            return protocol.Reply(command=request.KIND, error=str(found["error"]))
        return protocol.Reply(command=request.KIND, answer=found)

    def carry_out(self, request: protocol.Request) -> Answer:
        """Carry out `request`, and return the answer. A further request ends a wait early."""
        if isinstance(request, protocol.RecordNode):
            return record(request)
        if isinstance(request, protocol.Wait):
            return commands.wait(request, self.has_request)
        if isinstance(request, protocol.Start):
            self.jobs.append(request.job_dir)
            return commands.start(request, signal.SIGTERM)
        return carry_out(request)

    def has_request(self, seconds: float) -> bool:
        """Wait for the next request for at most `seconds` or PERIOD. Return True if it is there."""
        rest = max(seconds, PERIOD)
        return b"\n" in self._input or bool(select.select([0], [], [], rest)[0])

    def end(self) -> None:
        """End the agents that this program has started."""
        for job_dir in self.jobs:
            try:
                commands.stop(protocol.Stop(job_dir=job_dir, peer=True))
            except (MxclusterError, OSError) as error:
                note("cannot end the agent of %s: %s" % (job_dir, error))

    def send(self, signum: int) -> None:
        """Send a signal of the batch system to the agents."""
        for job_dir in self.jobs:
            try:
                status = JobFolder(job_dir).status()
                if status is not None:
                    processes.send(processes.recorded(status.agent), signum)
            except (MxclusterError, OSError) as error:
                note("cannot send a signal to the agent of %s: %s" % (job_dir, error))


def record(request: protocol.RecordNode) -> Recorded:
    """Return the facts of this node, which another process finds: MXNet would stay in the memory.

    Raises MxclusterError if the process fails.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-m", "mxcluster.entry"],
        input=request.to_bytes(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        found = json.loads(done.stdout.decode().splitlines()[-1])
        error = found.get("error")
    except (IndexError,) + DAMAGED:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        error = "`%s -m mxcluster.entry` (record) ended with status %d: %s" % (
            sys.executable,
            done.returncode,
            lines[-1] if lines else "(no output)",
        )
    if error:
        raise MxclusterError(str(error))
    return cast(Recorded, request.decoded("this node", found))


def serve(answers: TextIO) -> None:
    """Run the server. `answers`: the stream for the answers."""
    server = Server(answers)
    # If the batch system ends the job or the node goes down, a signal reaches this program.
    signal.signal(signal.SIGTERM, lambda *_: server.send(signal.SIGTERM))
    for warning in (signal.SIGUSR1, signal.SIGUSR2):  # Grid Engine warns before it ends a job
        signal.signal(warning, lambda *_: None)
    server.run()
