"""Run the head of a batch job: `python -I -m mxcluster.batch.head JOB_FOLDER`.

The batch system starts the head on the first node of the job. The head starts the program
`mxcluster.entry --serve` on each node, and makes the plan from the facts of the nodes. It gives
each node its part of the plan, and watches the nodes until all parts have ended. The requests are
the commands of the controller (see `mxcluster.model.protocol`). The submit host and all nodes share
the job folder. The head writes the status of the job into this folder, and reads orders and the
lease.
"""

import contextlib
import json
import os
import secrets
import signal
import sys
import time
import traceback
from typing import Callable, Dict, Iterable, List, Optional, Type, TypeVar, cast

from mxcluster import batch_systems, package
from mxcluster.agent import batch_job
from mxcluster.agent.folder import BEAT, LEASE, ORDER, SECRET_ENV, JobFolder
from mxcluster.agent.lease import Lease
from mxcluster.agent.shared_folder import NONCE
from mxcluster.agent.supervisor import note
from mxcluster.batch.node_channel import NodeChannel, exchange
from mxcluster.errors import BadInput, MxclusterError, of_system
from mxcluster.exit_codes import SHUTDOWN
from mxcluster.job import verdict
from mxcluster.job.plan import for_node, submission
from mxcluster.job.plan.look import look
from mxcluster.model import failures
from mxcluster.model.answers import Answer, Looked, Lost, NodeResult, Recorded
from mxcluster.model.failures import Failure
from mxcluster.model.host_variables import HostVariables
from mxcluster.model.node_record import NodeFacts
from mxcluster.model.plan import NodePlan, Plan
from mxcluster.model.protocol import Look, RecordNode, Request, SharedFolder, Start, Stop, Wait
from mxcluster.model.status import RUNNING, Status
from mxcluster.model.submission import Submission

A = TypeVar("A", bound=Answer)

PERIOD = 0.5  # seconds between two looks at the nodes, the lease and the order
BEATS = 1.0  # seconds between two beats
ANSWER = 180.0  # timeout for the facts of a node, in seconds; the node imports MXNet
WAIT = 5.0  # seconds of a wait for a node's part of the job, as in a poll of the controller
SILENT = 15.0  # seconds without a valid answer of a node after which the node counts as lost
SIGNAL = 1.0  # seconds between the signals of a batch system on two nodes
LAST = 20.0  # timeout for the last lines of the nodes after the end of the job, in seconds
SAVES = 20  # maximum number of attempts to write the last status
TRIES = 3  # maximum number of plans around busy ports and GPUs


class Ended(Exception):
    """Error that ends the job. The arguments are the reason and the first failure or None."""


class Head:
    """Runs the job in `folder`. `plan`: the submission. `environ`: this process's variables."""

    def __init__(self, folder: JobFolder, plan: NodePlan, environ: Dict[str, str]):
        self.folder = folder
        self.plan: Plan = plan  # the submission; later the plan of the job
        self.submission, self.request = plan, cast(Submission, plan.batch)
        self.engine = batch_systems.of(plan.launcher)
        self.number = self.engine.identity(environ)
        self.environ = environ
        self.lease = Lease(plan.lease)
        self.nodes = {}  # type: Dict[str, NodeChannel]
        self.lost: Dict[str, Lost] = {}
        self.cut = []  # type: List[str]  # hosts that run, but whose srun or program was killed
        self.signalled = 0  # the number of the signal that ends the job, 0 without a signal
        self.beaten = 0.0
        self.saved: Optional[Status] = None
        known = folder.status()
        self.status = batch_job.status_of(plan, self.number)
        self.status = self.status.replaced(started=known.started if known else self.status.started)
        self.in_batch(phase="starts")

    def in_batch(self, **values: object) -> None:
        """Set fields of the BatchState of the status."""
        state = batch_job.of_batch(self.status).replaced(**values)
        self.status = self.status.replaced(batch=state)

    def run(self) -> bool:
        """Run the job to its end. Return True if all parts of the job are done."""
        self.beat()
        self.save()
        try:
            self.start()
            reason, cause = self.watch(), None
        except Ended as end:
            reason, cause = end.args
        except Exception as error:  # no error here may leave a process behind
            reason, cause = "failed", self.fault(self.words_of(error))
        try:
            cause = self.end_nodes(reason, cause)
        except Exception as error:  # the job must get its last status
            cause = cause or self.fault(self.words_of(error))
        self.finish(reason, cause)
        return self.status.reason == "done"

    def words_of(self, error: Exception) -> str:
        """Return the cause of the job's end. The traceback of a foreign error goes to batch.log."""
        if isinstance(error, MxclusterError):
            return str(error)
        note(traceback.format_exc())
        if isinstance(error, OSError):
            return of_system(error, self.folder.path)
        return "the head failed: %s (see batch.log)" % error

    def start(self) -> None:
        """Start the programs on the nodes, make the plan, and start the agents."""
        hosts = self.engine.hosts(self.environ)
        nonce = secrets.token_hex(16)
        self.folder.write_private(NONCE, nonce)
        has_secrets = os.path.exists(self.folder.file(SECRET_ENV))
        shared = SharedFolder(path=self.folder.path, nonce=nonce, has_secrets=has_secrets)
        argv = [sys.executable, "-I", "-m", "mxcluster.entry", "--serve"]
        self.nodes = {
            host: NodeChannel(host, self.engine.on_node(host, argv), self.plan.job, sys.stderr)
            for host in hosts
        }
        note("%s gives the nodes %s" % (self.engine.FACTS.title, ", ".join(hosts)))
        for node in self.nodes.values():
            node.ask(RecordNode(shared=shared))
        facts = {host: found.record for host, found in self.gather(RecordNode, Recorded).items()}
        held: Dict[str, Dict[str, Dict[str, str]]] = {}
        for _ in range(TRIES):
            made = submission.complete(
                self.submission, self.request, hosts, facts, held, self.number
            )
            looks = self.look(made, facts)
            held = {
                host: {"ports": dict(found.held.ports), "gpus": dict(found.held.gpus)}
                for host, found in looks.items()
            }
            if all(found.fits for found in looks.values()):
                break
        else:
            raise MxclusterError("the free ports and GPUs of the nodes changed during each plan")
        self.plan = made
        self.folder.write_private(batch_job.PLANNED, json.dumps(made.encode()))
        for host in list(self.nodes):
            if host not in made.nodes:  # kv=local uses only one node
                self.nodes.pop(host).close()
        for host, node in self.nodes.items():
            # The agents need no lease: their nodes' programs end them if the head is gone.
            part = for_node(made, host).replaced(lease=0.0, whole=made)
            node.ask(Start(job_dir=self.job_dir(host), plan=part, shared=shared))
        nodes = self.nodes.values()
        self.until(
            lambda: (
                any(node.error or not (node.is_open or node.status) for node in nodes)
                or all(node.status for node in nodes)
            )
        )
        _attempt(self.folder.forget_secret_env)  # each agent has read the copy of its node
        self.refuse_errors("has not started")
        self.in_batch(phase="runs")

    def job_dir(self, host: str) -> str:
        """Return the folder of the node's part of the job on the node `host`."""
        return self.plan.nodes[host].job_dir

    def look(self, made: Plan, facts: Dict[str, NodeFacts]) -> Dict[str, Looked]:
        """Return the answers of the nodes for the plan `made`, or raise MxclusterError."""
        name = package.archive()[0]
        for host, node in self.nodes.items():
            if host in made.nodes:
                record = submission.record_of(self.request, host, facts[host])
                wanted = look(made, host, record, HostVariables(), name).replaced(job=None)
                node.ask(Look(arguments=wanted))
        found = self.gather(Look, Looked, made.nodes)
        problems = ["%s: %s" % (host, text) for host, one in found.items() for text in one.problems]
        if problems:
            raise MxclusterError("; ".join(problems))  # the reason of a failure is one line
        return found

    def gather(
        self, command: Type[Request], answer: Type[A], hosts: Iterable[str] = ()
    ) -> Dict[str, A]:
        """Return {host: answer to `command`} of `hosts`, or of all. Raises Ended if a node fails.

        Args: `answer` the class of the answers.
        """
        kind = command.KIND
        wanted = [self.nodes[host] for host in (hosts or self.nodes)]
        for node in wanted:
            node.answers.pop(kind, None)
        self.until(
            lambda: (
                any(node.error or not node.is_open for node in wanted)
                or all(kind in node.answers for node in wanted)
            )
        )
        self.refuse_errors("has not answered")
        found = {node.host: node.answers.get(kind) for node in wanted}
        return {host: one for host, one in found.items() if isinstance(one, answer)}

    def refuse_errors(self, what: str) -> None:
        """Raise Ended if a node has an error, or if the program of a node has ended."""
        for node in self.nodes.values():
            if node.error or not node.is_open and not node.status:
                self.await_signal()
                text = node.error or (
                    "the program of mxcluster on this node %s. Read the end of batch.log, and check"
                    " that all nodes share %s and can run %s"
                    % (what, self.folder.path, sys.executable)
                )
                raise Ended("failed", self.fault(text, node.host))

    def await_signal(self) -> None:
        """Wait for the signal of the batch system, which may be ending the whole job."""
        deadline = time.monotonic() + SIGNAL
        while not self.signalled and time.monotonic() < deadline:
            time.sleep(0.1)

    def until(self, test: Callable[[], bool]) -> None:
        """Wait until `test` returns True. Raises Ended after ANSWER seconds, or as `turn` does."""
        deadline = time.monotonic() + ANSWER
        while not test():
            self.turn()
            if time.monotonic() > deadline:
                text = "has not answered for %d s" % ANSWER
                silent = min(self.nodes.values(), key=lambda node: node.last_valid)
                raise Ended("failed", self.fault(text, silent.host))

    def turn(self) -> None:
        """Read the lines of the nodes, and write the beat. Raises Ended if the job must end."""
        exchange(self.nodes.values(), PERIOD)
        self.beat()
        if self.signalled:
            raise Ended("failed", None)
        order = self.order()
        if order:
            raise Ended(order, None)
        with contextlib.suppress(OSError):  # as in the agent, a fault of the disk ends no job
            if self.folder.lease_mtime() is None:
                self.folder.begin_lease(self.lease.mtime)
            os.close(os.open(self.folder.file(LEASE), os.O_RDONLY))  # NFS then reads fresh times
        # The clock of the submit host sets the mtime, so this node's clock has no meaning here.
        expired = self.lease.expired(self.folder.lease_mtime(), None, time.monotonic())
        if expired:
            self.status = self.status.replaced(lease=expired)
            raise Ended("lease", None)

    def watch(self) -> str:
        """Watch the nodes until the job has to end. Return the reason."""
        for node in self.nodes.values():
            node.last_valid = time.monotonic()  # before, an answer could last up to ANSWER seconds
        while True:
            self.turn()
            self.merge()
            self.save()
            now = time.monotonic()
            for host, node in self.nodes.items():
                is_due = not node.error or now - node.last_answer >= PERIOD
                if not node.pending and is_due and not node.has_ended:
                    node.ask(Wait(job_dir=self.job_dir(host), seconds=WAIT))
                if node.has_ended:
                    continue
                cut = None if node.is_open else node.why_cut()
                if cut:
                    self.await_signal()
                    self.cut.append(host)
                    text = cut + ". Find the program or the user that has sent the signal"
                    raise Ended("failed", self.fault(text, host, failures.NODE))
                if now - node.last_valid > SILENT or not node.is_open:
                    why = node.error or "no sign of life"
                    why = why if node.is_open else "its program has ended"
                    since = time.time() - (now - node.last_valid)
                    self.lost[host] = Lost(since=since, why=why)
                    note("%s is lost: %s" % (host, why))
            ends = [
                node.status.reason
                for node in self.nodes.values()
                if node.status and node.status.has_ended
            ]
            if self.lost or SHUTDOWN in ends:
                self.await_signal()
            if self.lost or any(reason != "done" for reason in ends):
                return "failed"
            if len(ends) == len(self.nodes):
                return "done"

    def end_nodes(self, reason: str, cause: Optional[Failure]) -> Optional[Failure]:
        """End the agents, and read the last lines of the nodes. Return the first failure or None.

        `cause`: the first failure of the head, or None.
        """
        note("ending: %s" % reason)
        self.in_batch(phase="ends")
        for host, node in self.nodes.items():
            if self.plan.processes:  # also for an ended part, whose leftovers the answer names
                node.ask(
                    Stop(
                        job_dir=self.job_dir(host),
                        peer=reason not in ("stopped", "lease"),
                        lease=reason == "lease",
                    )
                )
            else:  # no agent has started
                node.close()
        deadline = time.monotonic() + LAST
        while time.monotonic() < deadline:
            for node in self.nodes.values():
                if not node.pending:
                    node.hang_up()
            waiting = [
                node for node in self.nodes.values() if node.is_open and node.host not in self.lost
            ]
            if not waiting:
                break
            exchange(self.nodes.values(), PERIOD)
            self.beat()
        for host, node in self.nodes.items():
            known = self.signalled or host in self.cut or node.has_ended
            if self.plan.processes and not known:
                since = time.time() - (time.monotonic() - node.last_valid)
                why = "no answer to the end of the job"
                self.lost.setdefault(host, Lost(since=since, why=why))
            node.close()
        self.merge()
        for host, node in self.nodes.items():
            if not node.status and node.error and not cause:
                cause = self.fault(node.error, host)
        parts = {
            host: NodeResult(left=node.left, lost=self.lost.get(host)).encode()
            for host, node in self.nodes.items()
        }
        _attempt(lambda: self.folder.write_private(batch_job.PARTS, json.dumps(parts)))
        return cause

    def finish(self, reason: str, cause: Optional[Failure]) -> None:
        """Write the last status, and remove the files that only a running job needs."""
        if self.signalled:
            # The batch system gives the reason for its signal only after the end of the whole job.
            # So the submit host asks for the reason, and writes the last status (`batch_job.look`).
            self.in_batch(signal=signal.Signals(self.signalled).name)
            for folder in [self.folder] + self.folder.parts():
                _attempt(folder.forget_token)
                _attempt(folder.forget_secret_env)
            self.save()
            return
        cause = cause or self.status.first_failure
        self.status = batch_job.end(self.status.replaced(first_failure=cause), reason, None)
        _attempt(self.folder.tidy)
        for _ in range(SAVES):  # a full disk may have space again after the end of the processes
            if self.save():
                break
            time.sleep(PERIOD)
        note("ended: %s" % reason)

    def merge(self) -> None:
        """Merge the statuses of the nodes into the status of the job.

        A node speaks only for the processes that the plan gives to this node.
        """
        statuses = [node.status for node in self.nodes.values() if node.status]
        own = {(process.host, process.name) for process in self.plan.processes}
        parts = [part for one in statuses for part in one.processes if (one.host, part.name) in own]
        first = [one.rendezvous for one in statuses if one.rendezvous]
        running = [part for part in first if part.state == RUNNING]
        self.status = self.status.replaced(
            processes=parts,
            rendezvous=next(iter(running + first), None),
            first_failure=verdict.first_failure(statuses),
        )

    def fault(self, text: str, host: str = "", kind: str = failures.BATCH) -> Failure:
        """Return the first failure for the error `text` of the head, on `host`.

        See `batch_job.failed` for `kind`.
        """
        text = host + ": " + text if host else text
        return batch_job.failed(self.folder, self.status, text, kind)

    def order(self) -> str:
        """Return the reason of an order to end the job, "" without an order."""
        try:
            with open(self.folder.file(ORDER), encoding="ascii") as stream:
                found = stream.read().strip()
        except OSError:
            return ""
        return found if found in ("stopped", "peer") else ""

    def beat(self) -> None:
        """Write the file BEAT every BEATS seconds, as a sign that the head runs."""
        if time.monotonic() - self.beaten >= BEATS:
            self.beaten = time.monotonic()
            _attempt(self._write_beat)

    def _write_beat(self) -> None:
        with open(self.folder.file(BEAT), "wb") as stream:
            stream.write(b"%d\n" % time.time())

    def save(self) -> bool:
        """Write the status if it has changed. Return False if the write fails."""
        if self.status != self.saved:
            if not _attempt(lambda: self.folder.write_status(self.status)):
                return False
            self.saved = self.status
        return True


def _attempt(change: Callable[[], object]) -> bool:
    """Call `change`, which changes files of the job folder. Return False after an OSError.

    As in the agent, a full disk or a fault of the file system must not end the head.
    """
    try:
        change()
    except OSError as error:
        note("the head cannot change a file of the job folder: %s" % error)
        return False
    return True


def main(argv: List[str]) -> int:
    """Run the job in the folder argv[0]. Return 0 if the job is done, else 1."""
    folder = JobFolder(argv[0])
    plan = folder.plan()
    if not plan.batch:
        raise BadInput("%s holds no job for a batch system" % folder.path)
    head = Head(folder, plan, dict(os.environ))

    def end(signum: int, *_: object) -> None:
        head.signalled = signum

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, end)
    return 0 if head.run() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
