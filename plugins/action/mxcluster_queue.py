"""Wait until all nodes of a job have room, before the job starts (wait_for_room, after).

First the plugin waits for the end of the job `after`. Then it keeps a ticket of the job on each
node, until all nodes have the ports and GPUs of the job free. Each poll renews the ticket. The
agent of the job removes the ticket when its processes have started. The tickets of a run that ends
early lapse.
"""

import os
import signal
import time
from typing import Optional

from ansible import constants as C
from ansible.errors import AnsibleError
from ansible.utils.display import Display

from mxcluster.ansible import arguments
from mxcluster.ansible.edge import TaskResult, TaskVars
from mxcluster.ansible.node_arguments import Connection
from mxcluster.ansible.node_task import NodeTask
from mxcluster.ansible.queue_board import END, GO, QueueBoard, agreed
from mxcluster.errors import BadInput, MxclusterError
from mxcluster.job.plan import packed, room
from mxcluster.job.verdict_text import clock, printable
from mxcluster.model.answers import Queued
from mxcluster.model.protocol import Queue
from mxcluster.model.record import Record, field, record
from mxcluster.node import processes

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
    connection: Connection = field(record(Connection))
    """The wishes for the test of the connection before the wait."""


class ActionModule(NodeTask):
    """The action plugin of `mxcluster_queue`, which runs once for each node of the job."""

    _given: Arguments
    _known: packed.Packed
    _host: str
    _task_vars: TaskVars
    _board: Optional[QueueBoard] = None
    _has_answered = False

    def run(self, tmp: object = None, task_vars: TaskVars = None) -> TaskResult:
        """Run one task and return its result to Ansible.

        If this node fails, the wait ends on all nodes, and the play fails.
        """
        result = super(ActionModule, self).run(tmp, task_vars)
        self._task_vars, self._host = task_vars, task_vars["inventory_hostname"]
        if self._task.check_mode:
            return dict(result, msg="check mode: mxcluster did not wait for room")
        # A signal may end ansible-playbook alone. Without this call the fork would then continue to
        # renew the ticket.
        processes.set_pdeathsig(os.getppid(), signal.SIGTERM)
        try:
            self._given = arguments.decode(Arguments, "mxcluster_queue", self._task.args)
            self._known = packed.unpack(self._given.packed_plan)
            if self._await_job():
                self._await_room()
        except BaseException as error:
            if self._board:
                self._board.end(END)
            if isinstance(error, MxclusterError):
                return dict(result, failed=True, msg=printable(str(error)))
            raise
        return result

    def _await_job(self) -> bool:
        """Wait until the job `after` has ended on all nodes of the new job.

        Returns False if another node has failed. Raises BadInput if no node knows that job.
        """
        job, is_known, shown = self._known.plan.options.after, self._path("known"), ""
        if not job:
            return True
        board = self._begin("after")
        while True:
            found = self._poll(Queue(job_dir=self._given.job_dir, after=job))
            if found.after != "unknown":
                agreed(is_known, lambda: "known")
            board.post(found.after != "runs", list(self._known.plan.nodes))
            if board.result():
                break
            if found.after == "runs" and not shown:
                shown = self._show("waiting for the end of the job %s" % job)
            time.sleep(self._given.poll)
        if board.result() == GO and not os.path.exists(is_known):
            raise BadInput(
                "after=%s: no node of this job has such a job. Name a job of these nodes, as "
                "status.yml shows it, or leave after out" % job
            )
        return board.result() == GO

    def _await_room(self) -> None:
        """Wait until all nodes have room. Raises BadInput after wait_for_room seconds."""
        plan, look = self._known.plan, self._known.looks[self._host]
        seconds, shown, began = plan.options.wait_for_room, "", time.monotonic()
        if not seconds:
            return
        board = self._begin("room")
        # The same date on all nodes. Otherwise two jobs could each be first on one node, and wait
        # for each other.
        since = float(agreed(self._path("since"), lambda: repr(time.time())))
        ticket = room.ticket(plan, look, since, self._given.poll)
        while True:
            found = self._poll(Queue(job_dir=self._given.job_dir, ticket=ticket))
            lacks = room.lacking(plan, self._host, look, found.held)
            board.post(not lacks, list(plan.nodes))
            if board.result():
                return
            if lacks and time.monotonic() - began > seconds:
                raise BadInput(
                    "%s. The job has waited for %s: give a longer wait_for_room, name other ports "
                    "or GPUs, or end the holder" % (". ".join(lacks), clock(seconds))
                )
            text = "waiting for room: %s" % "; ".join(lacks)
            if lacks and text != shown:
                shown = self._show(text)
            time.sleep(self._given.poll)

    def _poll(self, request: Queue) -> Queued:
        """Return the answer of the node. After the first answer, retry for the lease of the job.

        Raises BadInput if the node refuses, and AnsibleError if the node stays silent.
        """
        began, given = time.monotonic(), self._given
        patience = self._known.plan.options.lease if self._has_answered else 0.0
        request = request.replaced(user=given.user)
        while True:
            connection = None if self._has_answered else given.connection
            try:
                found = self.ask(given.python, request, self._task_vars, connection)
                if not found.get("failed"):
                    self._has_answered = True
                    return Queued.decode(found)
                error: Exception = BadInput(str(found["msg"]))
            except AnsibleError as failure:
                error = failure
            if time.monotonic() - began >= patience:
                raise error
            time.sleep(given.poll)

    def _begin(self, phase: str) -> QueueBoard:
        """Return the board of a new wait."""
        self._board = QueueBoard(self._path(phase), self._host)
        return self._board

    def _show(self, text: str) -> str:
        display.display(printable(text))
        return text

    def _path(self, name: str) -> str:
        """Return a path in the temporary folder of this run of Ansible, the same for all nodes."""
        return os.path.join(C.DEFAULT_LOCAL_TMP, "queue-%s-%s" % (name, self._known.plan.job))
