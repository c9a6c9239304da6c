"""The meeting of a job's nodes before its processes start: does TCP really get from everyone to everyone that will talk?

`python -m mxcluster.meeting`, run by the agent in the job folder, once a node. It listens on the planned address and port of
each of the node's processes, where they themselves will, and connects to those of the other nodes' processes that they will
talk to: the scheduler, servers and workers each with those of the other roles. Both ends say who they are and what time it is.
The node is ready when all whom it wants have answered and all who want it have come.

Both ends prove that they have the job's token: each sends a number that was never used before, and the other's proof
(`kvstore.seal`) is about both numbers, both hosts and the port, so that what somebody has recorded proves nothing.

    caller:    {"job", "host", "nonce"}
    answerer:  {"job", "host", "time", "nonce", "proof"}
    caller:    {"proof"}

meeting.json tells the round-trip times, the clocks' offsets and this node's limits. Exit status 0; MEETING_FAILED with who
cannot be reached and why, which port is taken, or whose clock is wrong; PEER_DIED when only others have not come, which is theirs
to explain.
"""
import json
import os
import resource
import shutil
import socket
import sys
import threading
import time
import uuid
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from . import exitcodes
from .errors import MxclusterError
from .kvstore import seal
from .verify import clocks

Json = Dict[str, Any]
Call = NamedTuple("Call", [("host", str), ("name", str), ("address", str), ("port", int)])

PAUSE = 0.1  # seconds between two tries: an agent that starts later is not there yet
PATIENCE = 5.0  # seconds for one connection
CALLERS = 16  # connections that are tried at once
NAMED = 3  # processes of a node that a complaint names


def calls(own: List[Json], peers: List[Json], host: str) -> List[Call]:
    """Whom this node has to reach: every process elsewhere that has another role than some process of its own."""
    roles = {process["role"] for process in own}
    return [Call(peer["host"], peer["name"], peer["address"], peer["port"]) for peer in peers
            if peer["host"] != host and roles - {peer["role"]}]


def callers(own: List[Json], peers: List[Json], host: str) -> Dict[int, Set[str]]:
    """{port of an own process: the hosts that have to come there}: the other side of `calls`."""
    return {process["port"]: {peer["host"] for peer in peers if peer["host"] != host and peer["role"] != process["role"]}
            for process in own}


class Meeting:
    """One node's part. `own` are its processes of the plan, `peers` those of all nodes."""

    def __init__(self, job: str, host: str, own: List[Json], peers: List[Json], timeout: float, token: bytes):
        self.job, self.host, self.token = job, host, token
        self.own = own
        self.calls = calls(own, peers, host)
        self.missing = callers(own, peers, host)  # who has not come yet
        self.deadline = time.monotonic() + timeout
        self.answers = {}  # type: Dict[Call, Json]
        self.refusals = {}  # type: Dict[Call, str]
        self.taken = []  # type: List[str]  # own ports that cannot be had, and why
        self.lock = threading.Lock()

    def run(self) -> None:
        """Listen and call until all have met, the time is over, or a port cannot be had."""
        listeners = []
        for process in self.own:
            try:
                listeners.append(listen(process["address"], process["port"]))
            except OSError as error:
                self.taken.append(why_taken(process["address"], process["port"], error))
        if self.taken:
            self.deadline = 0.0  # nobody is waited for
        for listener in listeners:
            threading.Thread(target=self.receive, args=(listener,), daemon=True).start()
        waiting = list(self.calls)
        for _ in range(min(CALLERS, len(waiting))):
            threading.Thread(target=self.call_all, args=(waiting,), daemon=True).start()
        while not self.complete() and time.monotonic() < self.deadline:
            time.sleep(0.01)
        for listener in listeners:
            listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept(), without which the port would not be free
            listener.close()

    def complete(self) -> bool:
        """Whether all have met."""
        with self.lock:
            return len(self.answers) == len(self.calls) and not any(self.missing.values())

    def call_all(self, waiting: List[Call]) -> None:
        """One of the threads that call: takes the next of `waiting`, and puts back whom it could not reach."""
        while time.monotonic() < self.deadline:
            with self.lock:
                call = waiting.pop(0) if waiting else None
            if call is None:
                return
            try:
                answer = ask(call, self.job, self.host, self.token)
            except (OSError, ValueError) as error:
                with self.lock:
                    self.refusals[call] = getattr(error, "strerror", None) or str(error) or type(error).__name__
                    waiting.append(call)
                time.sleep(PAUSE)
            else:
                with self.lock:
                    self.answers[call] = answer

    def receive(self, listener: socket.socket) -> None:
        """Answer whoever comes to one of the ports."""
        port = listener.getsockname()[1]
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:  # closed: the meeting is over
                return
            threading.Thread(target=self.answer, args=(connection, port), daemon=True).start()

    def answer(self, connection: socket.socket, port: int) -> None:
        """Tell one caller who is here; take note of him if he is of this job."""
        try:
            with connection:
                connection.settimeout(PATIENCE)
                said = json.loads(read_line(connection))
                known = facts(self.job, said.get("host"), self.host, port, said.get("nonce"), uuid.uuid4().hex)
                now = time.time()
                connection.sendall(line({"job": self.job, "host": self.host, "time": now, "nonce": known[-1],
                                         "proof": seal.proof(self.token, "answer", now, *known)}))
                # A caller has come when it knows that it has: one that gives up on a slow answer calls again.
                proof = json.loads(read_line(connection)).get("proof")
                if said.get("job") == self.job and seal.proves(self.token, proof, "call", *known):
                    with self.lock:
                        self.missing[port].discard(said.get("host"))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):  # a stranger, or one who has given up
            pass

    def result(self) -> Json:
        """What goes into meeting.json."""
        met = [dict(answer, host=call.host, name=call.name, address=call.address, port=call.port)
               for call, answer in sorted(self.answers.items())]
        lost = [dict(host=call.host, name=call.name, address=call.address, port=call.port,
                     reason=self.refusals.get(call, "no time left to try"))
                for call in self.calls if call not in self.answers]
        return {"host": self.host, "met": met, "unreachable": [] if self.taken else lost, "taken": self.taken,
                "missing": sorted({host for hosts in self.missing.values() for host in hosts}), "limits": limits(os.getcwd())}


def listen(address: str, port: int) -> socket.socket:
    """A listening socket as ps-lite makes them: connections of an earlier job that linger are no obstacle. OSError if not."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def why_taken(address: str, port: int, error: OSError) -> str:
    """Who has the port that could not be had, and what to do."""
    from .node import port_problem  # seldom needed
    return port_problem(address, port) or "port %d on %s could not be had for a moment (%s): try again" % (
        port, address, error.strerror)


def facts(job: str, caller: str, answerer: str, port: int, asked: str, answered: str) -> Tuple:
    """What the proofs of both ends are about; `asked` and `answered` are their numbers."""
    return job, caller, answerer, port, asked, answered


def ask(call: Call, job: str, host: str, token: bytes) -> Json:
    """{"rtt", "offset"} in seconds of the node that answers a call. ValueError if it is not one of this job."""
    nonce = uuid.uuid4().hex
    with socket.create_connection((call.address, call.port), PATIENCE) as connection:
        began, sent = time.monotonic(), time.time()
        connection.sendall(line({"job": job, "host": host, "nonce": nonce}))
        try:
            said = json.loads(read_line(connection))
            there = float(said["time"])
            if said["job"] != job or said["host"] != call.host:
                raise ValueError("the job %s of %s answers there" % (said["job"], said["host"]))
            known = facts(job, host, call.host, call.port, nonce, str(said.get("nonce")))
            if not seal.proves(token, said.get("proof"), "answer", said["time"], *known):
                raise ValueError("something answers there in the name of %s, but without the job's token" % call.host)
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError, RecursionError):
            raise ValueError("something else than mxcluster answers there") from None
        rtt = time.monotonic() - began
        connection.sendall(line({"proof": seal.proof(token, "call", *known)}))
    return {"rtt": round(rtt, 6), "offset": round(there - (sent + rtt / 2), 6)}


def read_line(connection: socket.socket) -> str:
    """What comes until the end of a line, of at most 4 KiB."""
    data = b""
    while not data.endswith(b"\n") and len(data) < 4096:
        piece = connection.recv(4096)
        if not piece:
            break
        data += piece
    return data.decode("utf-8")


def line(said: Json) -> bytes:
    """One line on the wire."""
    return (json.dumps(said) + "\n").encode("utf-8")


def limits(folder: str) -> Json:
    """What a process of the job may use here: files open at once, free bytes in its folder and in shared memory."""
    shm = "/dev/shm"
    return {"open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0], "free": shutil.disk_usage(folder).free,
            "shm": shutil.disk_usage(shm).free if os.path.isdir(shm) else 0}


def complaints(result: Json) -> List[str]:
    """A line for each own port that is taken, and for each node that cannot be reached: which of its processes, why, and
    what that points to."""
    by_host = {}  # type: Dict[str, List[Json]]
    for one in result["unreachable"]:
        by_host.setdefault(one["host"], []).append(one)
    lines = ["%s: %s" % (result["host"], why) for why in result["taken"]]
    for host, lost in by_host.items():
        reason = lost[0]["reason"]
        named = ", ".join("%s at %s:%d" % (one["name"], one["address"], one["port"]) for one in lost[:NAMED])
        more = " and %d more" % (len(lost) - NAMED) if len(lost) > NAMED else ""
        lines.append("%s cannot reach %s (%s): %s. %s" % (
            result["host"], host, named + more, reason,
            "Is its agent running, and does a firewall let these ports through?" if "answers there" not in reason
            else "Choose another root_port, or end what runs there."))
    return lines


def main(folder: Optional[str] = None) -> int:
    """Meet as plan.json of the job folder says."""
    with open(os.path.join(folder or os.getcwd(), "plan.json"), encoding="utf-8") as stream:
        plan = json.load(stream)
    spec = plan["meeting"]
    try:
        token = seal.read_token(folder or os.getcwd())
    except MxclusterError as error:
        print("%s: %s" % (plan["host"], error), file=sys.stderr)
        return exitcodes.MEETING_FAILED
    meeting = Meeting(plan["job"], plan["host"], spec["own"], plan["peers"], spec["timeout"], token)
    meeting.run()
    result = meeting.result()
    with open("meeting.json.part", "w", encoding="utf-8") as stream:
        json.dump(result, stream, indent=1)
    os.replace("meeting.json.part", "meeting.json")
    problems = complaints(result)
    if plan["processes"]:  # a job that is nothing but its meeting is one of verify.yml, which judges the clocks itself
        problems += clocks({plan["host"]: result}, spec["clock"])
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return exitcodes.MEETING_FAILED
    if result["missing"]:
        print("%s did not come to %s" % (", ".join(result["missing"]), plan["host"]), file=sys.stderr)
        return exitcodes.PEER_DIED
    return 0


if __name__ == "__main__":
    sys.stderr.flush()
    code = main()
    sys.stderr.flush()
    os._exit(code)  # threads that wait for a connection are of no more use
