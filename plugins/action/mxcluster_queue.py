"""Wait until all nodes of a job have room, before the job starts (wait_for_room, after).

First the plugin waits for the end of the job `after`, then until all nodes have the ports and GPUs
of the job free. Meanwhile it keeps a ticket of the job on each node, which each poll renews. The
agent of the job removes the ticket when its processes have started. If the job gives up, the plugin
withdraws the ticket. Only the ticket of a killed controller lapses.
"""

import contextlib
import os
import signal
import time
from typing import Callable, List, Optional

from ansible import constants as C
from ansible.errors import AnsibleError
from ansible.utils.display import Display

from mxcluster.ansible import arguments
from mxcluster.ansible.edge import TaskResult, TaskVars
from mxcluster.ansible.node_task import NodeTask
from mxcluster.ansible.queue_board import END, GO, QueueBoard, agreed
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.job.plan import packed, room
from mxcluster.job.verdict_text import clock, printable
from mxcluster.model.answers import Queued
from mxcluster.model.protocol import Queue
from mxcluster.model.record import Record, field
from mxcluster.model.ticket import MOST_REASONS, Ticket
from mxcluster.node import processes

LOOK = 0.2  # seconds between two looks at the result of the wait, between two polls
FOREVER = float("inf")
# Seconds until ssh gives up the connection to a node that withdraws a ticket.
HURRIED = 3

display = Display()


class Arguments(Record, strict=True):
    """The arguments of the task."""

    python: str = field(arguments.text)
    """The Python interpreter on the node that has mxcluster; may begin with ~/."""
    user: str = field(arguments.text)
    """The training user, "" for the login user."""
    job_dir: str = field(arguments.text)
    """The folder of the job on the node."""
    packed_plan: str = field(arguments.text)
    """The `packed_plan` of mxcluster_plan."""
    poll: float = field(arguments.real(0, 30))
    """The seconds between two polls."""


class ActionModule(NodeTask):
    """The action plugin of `mxcluster_queue`, which runs once for each node of the job."""

    _given: Arguments
    _known: packed.Packed
    _host: str
    _task_vars: TaskVars
    _board: Optional[QueueBoard] = None
    _has_ticket = False
    _is_interrupted = False

    def run(self, tmp: object = None, task_vars: TaskVars = None) -> TaskResult:
        """Run one task and return its result to Ansible.

        If this node fails, the wait ends on all nodes, and the play fails.
        """
        result = super(ActionModule, self).run(tmp, task_vars)
        self._task_vars, self._host = task_vars, task_vars["inventory_hostname"]
        if self._task.check_mode:
            return dict(result, msg="check mode: mxcluster did not wait for room")
        self._hear_signals()
        try:
            self._given = arguments.decode(Arguments, "mxcluster_queue", self._task.args)
            self._known = packed.unpack(self._given.packed_plan)
            self._await_job()
            self._await_room()
            if self._is_interrupted:
                raise BadInput("the wait was interrupted")
        except MxclusterError as error:
            return dict(result, failed=True, msg=printable(str(error)))
        finally:
            self._leave()
        return result

    def _hear_signals(self) -> None:
        """Make SIGINT and SIGTERM end the wait between two polls, with the time to withdraw.

        A signal may end ansible-playbook alone. The kernel then sends SIGTERM to this fork.
        """

        def end(signum: int, frame: object) -> None:
            self._is_interrupted = True

        signal.signal(signal.SIGTERM, end)
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            signal.signal(signal.SIGINT, end)
        processes.set_pdeathsig(os.getppid(), signal.SIGTERM)

    def _await_job(self) -> None:
        """Wait until the job `after` has ended on all nodes of the new job.

        Raises BadInput if no node knows that job.
        """
        job, is_known = self._known.plan.options.after, self._path("known")
        if not job:
            return

        def lacking(found: Queued) -> List[str]:
            if found.after != "unknown":
                agreed(is_known, lambda: "known")
            return ["the end of the job %s" % job] if found.after == "runs" else []

        ticket = self._ticket("after").replaced(address=None, ports=[], gpus=[], after=job)
        if self._await("after", ticket, lacking) and not os.path.exists(is_known):
            self._board = None  # all nodes have agreed to start, and all refuse
            raise BadInput(
                "after=%s: no node of this job has such a job. Name a job of these nodes, as "
                "status.yml shows it, or leave after out" % job
            )

    def _await_room(self) -> None:
        """Wait until all nodes have room. Raises BadInput after wait_for_room seconds."""
        plan, look = self._known.plan, self._known.looks[self._host]
        seconds = plan.options.wait_for_room
        if seconds and not self._is_over():

            def lacking(found: Queued) -> List[str]:
                return room.lacking(plan, self._host, look, found.held)

            self._await("room", self._ticket("room"), lacking, seconds)

    def _await(
        self,
        phase: str,
        ticket: Ticket,
        lacking: Callable[[Queued], List[str]],
        seconds: float = FOREVER,
    ) -> bool:
        """Return True as soon as no node lacks anything, False if the wait has ended before.

        Args: `phase` the name of the wait; `ticket` of the job; `lacking(answer)` a line for each
        reason to wait; `seconds` the longest wait. Raises BadInput after this time.
        """
        board = self._board = QueueBoard(self._path(phase), self._host)
        shown, began = "", time.monotonic()
        while not self._is_interrupted:
            found = self._poll(Queue(job_dir=self._given.job_dir, ticket=ticket))
            lacks = lacking(found)
            ticket = ticket.replaced(reasons=lacks[:MOST_REASONS])
            board.post(not lacks, list(self._known.plan.nodes))
            if board.result():
                break
            if lacks and time.monotonic() - began > seconds:
                raise BadInput(
                    "%s. The job has waited for %s: give a longer wait_for_room, name other ports "
                    "or GPUs, or end the holder" % (". ".join(lacks), clock(seconds))
                )
            text = "; ".join(lacks)
            if lacks and text != shown:
                shown = self._show(phase, text)
            self._pause()
        return board.result() == GO

    def _pause(self) -> None:
        """Sleep until the next poll, or until the wait is over."""
        until = time.monotonic() + self._given.poll
        while time.monotonic() < until and not self._is_over():
            time.sleep(min(LOOK, self._given.poll))

    def _is_over(self) -> bool:
        """Return True if the wait was interrupted, or has a result other than GO."""
        return self._is_interrupted or bool(self._board and self._board.result() == END)

    def _poll(self, request: Queue) -> Queued:
        """Return the answer of the node. After an error, retry for the lease of the job.

        Raises BadInput if the node refuses, and AnsibleError if the node stays silent.
        """
        began, given = time.monotonic(), self._given
        request = request.replaced(user=given.user)
        self._has_ticket = True  # also if the answer is lost
        while True:
            try:
                found = self.ask(given.python, request, self._task_vars)
                if not found.get("failed"):
                    return Queued.decode(found)
                error: Exception = BadInput(str(found["msg"]))
            except AnsibleError as failure:
                error = failure
            if time.monotonic() - began >= self._known.plan.options.lease or self._is_over():
                # A silent node cannot withdraw its ticket. A signal may have ended ssh alone.
                self._has_ticket = self._is_over()
                raise error
            self._pause()

    def _leave(self) -> None:
        """End the wait on all nodes, and withdraw the ticket of this node, unless the job starts.

        If the node does not answer, the ticket lapses.
        """
        result = END
        if self._board:
            with contextlib.suppress(OSError):  # ansible-playbook may have removed the board
                result = self._board.end(END)
        if self._has_ticket and result == END:
            self.limit_connecting(HURRIED)
            request = Queue(job_dir=self._given.job_dir, user=self._given.user)
            with contextlib.suppress(AnsibleError):
                self.ask(self._given.python, request, self._task_vars)

    def _ticket(self, phase: str) -> Ticket:
        """Return the ticket of the job on this node, with the same date on all nodes.

        Otherwise two jobs could each be first on one node, and wait for each other.
        """
        since = float(agreed(self._path("since-" + phase), lambda: repr(time.time())))
        look = self._known.looks[self._host]
        return room.ticket(self._known.plan, look, since, self._given.poll)

    def _show(self, phase: str, text: str) -> str:
        """Show the reason of the wait. All nodes have the same reason to wait for a job."""
        path = self._path("shown-" + phase)
        if phase == "room" or agreed(path, lambda: self._host) == self._host:
            display.display(printable("waiting for %s%s" % ("room: " * (phase == "room"), text)))
        return text

    def _path(self, name: str) -> str:
        """Return a path in the temporary folder of this run of Ansible, the same for all nodes."""
        return os.path.join(C.DEFAULT_LOCAL_TMP, "queue-%s-%s" % (name, self._known.plan.job))
