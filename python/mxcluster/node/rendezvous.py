"""Check before a job's start that TCP works between all processes of the job (the rendezvous).

The agent of each node runs `python -m mxcluster.node.rendezvous` in the job folder. The program
listens on the planned address and port of each process of the node. The program also connects to
processes of other nodes. In a job, processes of the same role do not talk to each other. So a node
without servers and scheduler skips the workers of other nodes.

Each end sends its host name, and the answerer also sends its time. The node is ready when all calls
have an answer and all expected callers have connected.

Each end proves that it has the job's token. For this proof (`mxcluster.seal`), each end sends a
nonce. Each proof covers both nonces, both hosts and the port, so a replayed proof is invalid.

    caller:    Query
    answerer:  Reply
    caller:    Confirmation

rendezvous.json holds the round-trip times, the clock offsets and this node's limits. Exit status:

- 0: success;
- RENDEZVOUS_FAILED: stderr names taken ports, wrong clocks, or unreachable nodes with the reason;
- PEER_DIED: expected callers have not connected. The nodes of these callers report the reason.
"""

import contextlib
import json
import os
import resource
import socket
import sys
import threading
import time
import uuid
from typing import Dict, List, Optional, Sequence, Set, Tuple, cast

from mxcluster import exit_codes, seal
from mxcluster.errors import DAMAGED, MxclusterError
from mxcluster.file_io import replace
from mxcluster.model.check_answer import Limits, Link, Met, RendezvousReport, Unreachable
from mxcluster.model.plan import NodePlan, Peer, RendezvousRequest
from mxcluster.model.record import Record
from mxcluster.model.rendezvous import Confirmation, Query, Reply
from mxcluster.node import addresses
from mxcluster.node.bandwidth import Transfers
from mxcluster.rendezvous_problems import clocks, complaints

PAUSE = 0.03  # seconds before a new call: another agent may start later
PATIENCE = 5.0  # seconds for one connection
CALLERS = 16  # number of threads that connect
CALL, TRANSFER = "call", "transfer"  # what a caller proves, see Query.transfer


def calls(own: List[Peer], peers: List[Peer], host: str) -> List[Peer]:
    """Return the processes that this node has to reach.

    Such a process runs on another host. At least one process of this node has another role.

    Args:
        own: the processes of this node, each with a port.
        peers: the processes of all nodes, each with a port.
        host: the name of this node.
    """
    roles = {process.role for process in own}
    return [peer for peer in peers if peer.host != host and roles - {peer.role}]


def callers(own: List[Peer], peers: List[Peer], host: str) -> Dict[int, Set[str]]:
    """Return {port of this node: hosts that must connect to the port}.

    The arguments are those of `calls`.
    """
    return {
        cast(int, process.port): {
            peer.host for peer in peers if peer.host != host and peer.role != process.role
        }
        for process in own
    }


class Rendezvous:
    """One node's part in the rendezvous.

    `job`: the job's id. `host`: the name of this node. `own`: the processes of this node in the
    plan. `peers`: the processes of all nodes. `timeout`: seconds. `token`: the job's token.
    `partners`: the nodes with which this node measures the bandwidth after the rendezvous.
    """

    def __init__(
        self,
        job: str,
        host: str,
        own: List[Peer],
        peers: List[Peer],
        timeout: float,
        token: bytes,
        partners: Sequence[str] = (),
    ):
        self.job, self.host, self.token = job, host, token
        self.own, self.peers = own, peers
        self.transfers = Transfers(host, partners)
        self.links: List[Link] = []
        self.calls = calls(own, peers, host)
        self.missing = callers(own, peers, host)  # hosts that have not connected yet
        self.deadline = time.monotonic() + timeout
        self.answers: Dict[str, Met] = {}  # by the name of the called process
        self.refusals: Dict[str, str] = {}  # the last error, by the name of the called process
        self.taken: List[str] = []  # own ports that cannot be bound, and why
        self.lock = threading.Lock()

    def run(self) -> None:
        """Listen and connect until the rendezvous is complete, times out, or a port is taken."""
        listeners = []
        for process in self.own:
            port = cast(int, process.port)
            try:
                listeners.append(addresses.listen(process.address, port))
            except OSError as error:
                self.taken.append(why_taken(process.address, port, error))
        if self.taken:
            self.deadline = 0.0  # do not wait
        for listener in listeners:
            threading.Thread(target=self.receive, args=(listener,), daemon=True).start()
        waiting = list(self.calls)
        for _ in range(min(CALLERS, len(waiting))):
            threading.Thread(target=self.call_all, args=(waiting,), daemon=True).start()
        while not self.complete() and time.monotonic() < self.deadline:
            time.sleep(0.01)
        if self.complete() and not self.taken:
            self.links = self.transfers.run(self.connect)
        for listener in listeners:
            # Wake the thread in accept(), which would keep the port in use.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def connect(self, host: str) -> socket.socket:
        """Return an open connection to the node `host` for a measurement of the bandwidth.

        Raises OSError or ValueError without a connection.
        """
        peer = next(one for one in self.peers if one.host == host and one.port is not None)
        return connect(peer, self.job, self.host, self.token, is_transfer=True)[0]

    def complete(self) -> bool:
        """Return True if all calls have an answer and all expected callers have connected."""
        with self.lock:
            return len(self.answers) == len(self.calls) and not any(self.missing.values())

    def call_all(self, waiting: List[Peer]) -> None:
        """Make the calls in `waiting`, one after another, until all are done or the time is over.

        A failed call goes back to the end of `waiting`. Several threads run this function.
        """
        while time.monotonic() < self.deadline:
            with self.lock:
                call = waiting.pop(0) if waiting else None
            if call is None:
                return
            try:
                answer = ask(call, self.job, self.host, self.token)
            except (OSError, ValueError) as error:
                with self.lock:
                    self.refusals[call.name] = (
                        getattr(error, "strerror", None) or str(error) or type(error).__name__
                    )
                    waiting.append(call)
                time.sleep(PAUSE)
            else:
                with self.lock:
                    self.answers[call.name] = answer

    def receive(self, listener: socket.socket) -> None:
        """Accept connections on `listener` until `run` closes the socket.

        A separate thread answers each caller.
        """
        port = listener.getsockname()[1]
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:  # closed: the rendezvous is over
                return
            threading.Thread(target=self.answer, args=(connection, port), daemon=True).start()

    def answer(self, connection: socket.socket, port: int) -> None:
        """Answer one caller on `connection`, which came to the port `port` of this node.

        If the caller proves that it has the job's token, record the caller's host, or keep the
        connection for the measurement of the bandwidth.
        """
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(connection)
                connection.settimeout(PATIENCE)
                query = Query.decode(json.loads(read_line(connection)))
                nonce, now = uuid.uuid4().hex, time.time()
                known = (self.job, query.host, self.host, port, query.nonce, nonce)
                proof = seal.proof(self.token, "answer", now, *known)
                reply = Reply(job=self.job, host=self.host, time=now, nonce=nonce, proof=proof)
                connection.sendall(line(reply))
                # A caller counts only when it has this answer: after a timeout it calls again.
                proof = Confirmation.decode(json.loads(read_line(connection))).proof
                kind = TRANSFER if query.transfer else CALL
                if query.job != self.job or not seal.proves(self.token, proof, kind, *known):
                    return
                if query.transfer:
                    stack.pop_all()
                    self.transfers.arrive(query.host, connection)
                else:
                    with self.lock:
                        self.missing[port].discard(query.host)
        except (OSError,) + DAMAGED:  # a foreign program, or a caller after its timeout
            pass

    def result(self) -> RendezvousReport:
        """Return the result on this node so far."""
        with self.lock:  # after a timeout, threads may still end their connections
            answers, refusals = dict(self.answers), dict(self.refusals)
            missing = {host for hosts in self.missing.values() for host in hosts}
        unreachable = [
            Unreachable(
                host=call.host,
                name=call.name,
                address=call.address,
                port=cast(int, call.port),
                reason=refusals.get(call.name, "the timeout passed before the first call"),
            )
            for call in self.calls
            if call.name not in answers
        ]
        return RendezvousReport(
            met=[answers[name] for name in sorted(answers)],
            unreachable=[] if self.taken else unreachable,
            taken=self.taken,
            missing=sorted(missing),
            limits=Limits(open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
            links=self.links,
        )


def why_taken(address: str, port: int, error: OSError) -> str:
    """Return the message that explains why this process cannot listen on address:port.

    `error`: the error of the failed bind. The message names the holder of the port and the cure.
    """
    from mxcluster.node.probe import port_problem  # rarely needed

    was_in_use = "port %d on %s was in use for a moment (%s): run the playbook again"
    return port_problem(address, port) or was_in_use % (port, address, error.strerror)


def ask(call: Peer, job: str, host: str, token: bytes) -> Met:
    """Call a process of another node, and return the round-trip time and the clock offset.

    Raises ValueError if the answer is not from this job, and OSError if there is no connection.
    """
    connection, met = connect(call, job, host, token)
    connection.close()
    return met


def connect(
    call: Peer, job: str, host: str, token: bytes, is_transfer: bool = False
) -> Tuple[socket.socket, Met]:
    """Return (the open connection to a process of another node, the result of the call).

    Raises the errors of `ask`. Args: `is_transfer` True if a measurement of the bandwidth follows.
    """
    nonce, port = uuid.uuid4().hex, cast(int, call.port)
    kind = TRANSFER if is_transfer else CALL
    with contextlib.ExitStack() as stack:
        connection = socket.create_connection((call.address, port), PATIENCE)
        stack.enter_context(connection)
        began, sent = time.monotonic(), time.time()
        query = Query(job=job, host=host, nonce=nonce, transfer=is_transfer)
        connection.sendall(line(query))
        try:
            reply = Reply.decode(json.loads(read_line(connection)))
        except (ValueError, RecursionError):
            raise ValueError("another program than mxcluster answers there") from None
        if reply.job != job or reply.host != call.host:
            raise ValueError("the job %s on %s answers there" % (reply.job, reply.host))
        known = (job, host, call.host, port, nonce, reply.nonce)
        if not seal.proves(token, reply.proof, "answer", reply.time, *known):
            raise ValueError(
                "a program answers there as %s, but without the job's token" % call.host
            )
        rtt = time.monotonic() - began
        connection.sendall(line(Confirmation(proof=seal.proof(token, kind, *known))))
        stack.pop_all()
    offset = reply.time - (sent + rtt / 2)
    return connection, Met(host=call.host, rtt=round(rtt, 6), offset=round(offset, 6))


def read_line(connection: socket.socket) -> str:
    """Receive one line (below 8 KiB) from `connection`, and return the line as text.

    The end of the connection also ends the line.
    """
    data = b""
    while not data.endswith(b"\n") and len(data) < 4096:
        piece = connection.recv(4096)
        if not piece:
            break
        data += piece
    return data.decode("utf-8")


def line(message: Record) -> bytes:
    """Return `message` as one line of JSON, in bytes."""
    return (json.dumps(message.encode()) + "\n").encode("utf-8")


def main(folder: Optional[str] = None) -> int:
    """Run the rendezvous with the plan.json in `folder`, and return the exit status.

    `folder` holds plan.json and the job's token. The default is the working directory. The function
    writes rendezvous.json into the working directory.
    """
    with open(os.path.join(folder or os.getcwd(), "plan.json"), encoding="utf-8") as stream:
        plan = NodePlan.decode(json.load(stream))
    spec = cast(RendezvousRequest, plan.rendezvous)
    try:
        token = seal.read_token(folder or os.getcwd())
    except MxclusterError as error:
        print("%s: %s" % (plan.host, error), file=sys.stderr)
        return exit_codes.RENDEZVOUS_FAILED
    rendezvous = Rendezvous(
        plan.job, plan.host, spec.own, plan.peers, spec.timeout, token, spec.partners
    )
    rendezvous.run()
    report = rendezvous.result()
    replace("rendezvous.json", json.dumps(report.encode(), indent=1))
    problems = complaints(plan.host, report)
    if plan.processes:
        problems += clocks({plan.host: report}, spec.clock)  # else verify.yml judges the clocks
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return exit_codes.RENDEZVOUS_FAILED
    if report.missing:
        print(
            "%s did not connect to %s: read rendezvous.log of the job on the missing nodes"
            % (", ".join(report.missing), plan.host),
            file=sys.stderr,
        )
        return exit_codes.PEER_DIED
    return 0


if __name__ == "__main__":
    sys.stderr.flush()
    code = main()
    sys.stderr.flush()
    os._exit(code)  # do not join threads that wait for a connection
