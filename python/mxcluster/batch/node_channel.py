"""Start `mxcluster.entry --serve` on a node of the job, and exchange lines with this program."""

import json
import os
import select
import subprocess
import time
from typing import IO, Dict, Iterable, List, Optional

from mxcluster import exit_codes
from mxcluster.agent.supervisor import note
from mxcluster.errors import DAMAGED, MxclusterError
from mxcluster.model import shapes
from mxcluster.model.answers import Answer, Stopped
from mxcluster.model.protocol import Reply, Request
from mxcluster.model.status import Status

MOST = 8 << 20  # maximum size of an answer in bytes
ENDS = 1.0  # timeout in seconds for the end of srun or qrsh after the end of its output


class NodeChannel:
    """The connection of the head to the node `host`.

    The channel checks all answers of the node, as the controller does. `answers` holds the last
    answer to each command, `status` the last status of the node, `left` the list of leftovers after
    the end, and `error` the first error. `pending` are the requests without an answer.
    `last_answer` is the monotonic time of the last answer, `last_valid` that of the last valid one.

    `argv`: the command line that starts the program. `job`: the id of the job. `log`: the file for
    stderr of the program.
    """

    def __init__(self, host: str, argv: List[str], job: str, log: IO[str]):
        self.host = host
        self.job = job
        self.status: Optional[Status] = None
        self.left: Optional[List[str]] = None
        self.error: Optional[str] = None
        self.answers: Dict[str, Answer] = {}
        self.pending: List[Request] = []
        self.last_answer = self.last_valid = time.monotonic()
        self.is_open = True
        self.unsent = b""  # the rest of the requests that the pipe to the program has no room for
        self._part = b""
        # In a session of its own the program does not get the signals for the head.
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        assert self.process.stdin
        self.requests = self.process.stdin.fileno()
        # A frozen node must not block the head.
        os.set_blocking(self.requests, False)
        os.set_blocking(self.fileno(), False)

    def fileno(self) -> int:
        """Return the descriptor of the answers, for select."""
        assert self.process.stdout
        return self.process.stdout.fileno()

    def ask(self, request: Request) -> None:
        """Send a request. `exchange` sends the rest if the pipe to the program is full."""
        self.pending.append(request)
        self.unsent += json.dumps(request.encode()).encode() + b"\n"
        self.send()

    def send(self) -> None:
        """Send as much of the requests as the pipe takes.

        The function ignores a lost node, because its silence shows the loss.
        """
        try:
            while self.unsent:
                self.unsent = self.unsent[os.write(self.requests, self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent = b""

    def read(self) -> None:
        """Read the lines that have arrived."""
        try:
            piece = os.read(self.fileno(), 1 << 20)
        except BlockingIOError:
            return
        if not piece:
            self.is_open = False
            return
        self._part += piece
        *lines, self._part = self._part.split(b"\n")
        if len(self._part) > MOST:
            self.fail("the answer has more than %d bytes" % MOST)
            self._part = b""
        for line in filter(None, lines):
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            reply = Reply.decode(json.loads(line.decode()))
        except DAMAGED:
            reply = None
        if not reply or not self.pending or reply.command != self.pending[0].KIND:
            # The shell of the node may print lines, too.
            note("%s printed %r" % (self.host, line[:200]))
            return
        request, self.last_answer = self.pending.pop(0), time.monotonic()
        if reply.error:
            self.fail(" ".join(reply.error.split("\n")))
            return
        try:
            answer = request.checked(self.host, reply.answer)
        except MxclusterError as refusal:
            self.fail(str(refusal))
            return
        self.last_valid = self.last_answer
        self.status = answer.status_of_job() or self.status
        if isinstance(answer, Stopped):
            self.left = list(answer.left)
        self.answers[request.KIND] = answer

    def fail(self, text: str) -> None:
        """Record the error `text`, unless the node already has an error."""
        self.error = self.error or shapes.words(text)

    @property
    def has_ended(self) -> bool:
        """True if the node has reported the end of its part of the job."""
        return bool(self.status and self.status.has_ended)

    def why_cut(self) -> Optional[str]:
        """Return why the program of the channel has ended, None if the node itself may be lost.

        srun and qrsh end with the status of the program on the node, or with an own status if they
        have lost the node.
        """
        try:
            code = self.process.wait(ENDS)
        except subprocess.TimeoutExpired:
            return None
        if code < 0:
            return "%s, which connects the first node with this node, was %s" % (
                os.path.basename(str(self.process.args[0])),  # type: ignore[index]
                exit_codes.describe(code),
            )
        code = exit_codes.of_shell(code)
        text = "the program of mxcluster on this node was " + exit_codes.describe(code)
        return text if code < 0 else None

    def hang_up(self) -> None:
        """Close stdin of the program on the node, which then ends."""
        assert self.process.stdin
        self.process.stdin.close()

    def close(self) -> None:
        """End the local program of the channel."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.is_open = False  # a child of the program may still have stdout open


def exchange(nodes: Iterable[NodeChannel], seconds: float) -> None:
    """Send the rest of the requests, and read the lines of the nodes. Wait at most `seconds`."""
    connected = [node for node in nodes if node.is_open]
    full = {node.requests: node for node in connected if node.unsent}
    readable, writable, _ = select.select(connected, list(full), [], seconds)
    for number in writable:
        full[number].send()
    for node in readable:
        node.read()
