"""The rendezvous, with real sockets on loopback addresses."""

import contextlib
import functools
import json
import os
import socket
import threading
import time

from mxcluster import seal
from mxcluster.model.check_answer import RendezvousReport
from mxcluster.model.plan import Peer
from mxcluster.model.record import encode
from mxcluster.model.rendezvous import Query, Reply
from mxcluster.node import addresses, rendezvous
from tests.machine import Stopwatch
from tests.networks import own_network
from tests.plans import part_json
from tests.waiting import until

A, B, C = (own_network() + ".%d" % number for number in (1, 2, 3))
PEERS = [
    Peer(name="%s-%d" % (role, index), role=role, host=host, address=address, port=port)
    for role, index, host, address, port in (
        ("scheduler", 0, "a", A, 19091),
        ("server", 0, "b", B, 19091),
        ("worker", 0, "a", A, 19092),
        ("worker", 1, "c", C, 19091),
    )
]


def own(host):
    return [peer for peer in PEERS if peer.host == host]


def plan_of(peers, timeout):
    """Return the plan of the node b as JSON."""
    request = {"own": encode(own("b")), "timeout": timeout, "clock": 1.0}
    worker = {"name": "worker-0", "role": "worker"}
    return part_json(worker, job="j", host="b", peers=encode(peers), rendezvous=request)


TOKEN = b"t" * 43


def give_token(folder):
    (folder / "token").write_bytes(TOKEN)
    (folder / "token").chmod(0o600)


def meet(*hosts, refused="", jobs=None, tokens=None):
    """Run a rendezvous of these hosts and return {host: result}.

    Without `refused`, the rendezvous is complete. Else c is missing: the timeout of the rendezvous
    passes when a and b have met, and both have got this answer from the address of c.
    """
    jobs, tokens, parts = jobs or {}, tokens or {}, {}
    for host in hosts:
        job, token = jobs.get(host, "job-1"), tokens.get(host, TOKEN)
        parts[host] = rendezvous.Rendezvous(job, host, own(host), PEERS, 60.0, token)
    threads = [threading.Thread(target=part.run) for part in parts.values()]
    for thread in threads:
        thread.start()
    if refused:
        until(
            lambda: all(
                part.result().missing == ["c"]
                and [refused in one.reason for one in part.result().unreachable] == [True]
                for part in (parts["a"], parts["b"])
            ),
            evidence=lambda: str([part.result() for part in parts.values()]),
        )
        for part in parts.values():
            part.deadline = 0.0
    for thread in threads:
        thread.join()
    return {host: part.result() for host, part in parts.items()}


def begin(timeout=60.0):
    """Start the part of b in a rendezvous; return the part and its thread when b listens."""
    part = rendezvous.Rendezvous("job-1", "b", own("b"), PEERS, timeout, TOKEN)
    thread = threading.Thread(target=part.run)
    thread.start()
    until(lambda: addresses.who_listens(B, 19091))
    return part, thread


def heard(connection):
    """Return the rest of what the other end says, which closes the connection at its end."""
    with contextlib.suppress(ConnectionResetError):  # it has not read all that we said
        return connection.makefile("rb").read()


def test_workers_and_servers_call_the_processes_they_talk_to():
    def called(host):
        return [peer.name for peer in rendezvous.calls(own(host), PEERS, host)]

    assert called("a") == ["server-0", "worker-1"]
    assert called("c") == ["scheduler-0", "server-0"], "workers do not call each other"
    assert rendezvous.callers(own("a"), PEERS, "a") == {19091: {"b", "c"}, 19092: {"b"}}


def test_a_complete_rendezvous_is_quick():
    with Stopwatch() as watch:
        results = meet("a", "b", "c")
    assert watch.within(1.0)
    for result in results.values():
        assert result.unreachable == result.missing == [] and result.limits.open_files > 0
    for met in results["a"].met:
        # All nodes have one clock, which the other node read between the call and its answer.
        assert abs(met.offset) <= met.rtt / 2 + 0.001 and met.rtt < watch.seconds, met
    again = meet("a", "b", "c")  # lingering connections of the first rendezvous do not matter
    assert again["a"].unreachable == []


def test_a_missing_node_is_named():
    results = meet("a", "b", refused="Connection refused")
    assert results["a"].missing == ["c"]
    assert rendezvous.complaints("b", results["b"]) == [
        "b cannot reach c (worker-1 at %s:19091): Connection refused. Check that the agent "
        "of c runs and that no firewall blocks these ports." % C
    ]


@contextlib.contextmanager
def stranger(reply):
    """Listen at the port of c, and call `reply` with each connection."""
    listener = addresses.listen(C, 19091)

    def talk():
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            with connection:
                reply(connection)

    threading.Thread(target=talk, daemon=True).start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_a_foreign_program_on_the_port_is_named():
    with stranger(lambda connection: connection.sendall(b"220 mail.example.org ready\n")):
        results = meet("a", "b", refused="another program")
    assert (
        "another program than mxcluster answers there. Choose another root_port"
        in rendezvous.complaints("b", results["b"])[0]
    )


def test_another_job_on_the_port_is_named():
    results = meet("a", "b", "c", refused="the job job-2", jobs={"c": "job-2"})
    assert "the job job-2 on c answers there" in rendezvous.complaints("a", results["a"])[0]
    assert results["a"].missing == ["c"]


def test_a_node_with_another_token_is_refused():
    """The message differs from that about a program without the rendezvous protocol."""
    results = meet("a", "b", "c", refused="the job's token", tokens={"c": b"u" * 43})
    assert (
        "a program answers there as c, but without the job's token. Choose another "
        "root_port" in rendezvous.complaints("a", results["a"])[0]
    )
    assert results["a"].missing == ["c"] and results["b"].missing == ["c"]
    assert [met.host for met in results["a"].met] == ["b"]


def test_replayed_messages_are_refused(monkeypatch):
    """An attacker repeats all recorded messages: each call to its port, and each answer of c."""
    said = {"calls": [], "answers": []}
    real = rendezvous.read_line

    def recorded(connection):
        text = real(connection)
        port, local = connection.getsockname()[1], connection.getsockname()[0]
        called = any(local == peer.address and port == peer.port for peer in PEERS)
        peer = connection.getpeername()
        said["calls" if called else "answers"].append(((local, port) if called else peer, text))
        return text

    monkeypatch.setattr(rendezvous, "read_line", recorded)
    meet("a", "b", "c")
    monkeypatch.setattr(rendezvous, "read_line", real)
    calls = [(place, text) for place, text in said["calls"] if "nonce" in text]
    proofs = [text for _, text in said["calls"] if "nonce" not in text]
    answer = next(text for place, text in said["answers"] if place == (C, 19091))
    assert calls and proofs and "proof" in answer
    with stranger(lambda connection: (real(connection), connection.sendall(answer.encode()))):
        part, thread = begin()
        for place, text in calls:
            for proof in proofs if place == (B, 19091) else ():
                with socket.create_connection(place) as connection:
                    connection.sendall(text.encode())
                    assert "proof" in real(connection)
                    connection.sendall(proof.encode())
                    assert heard(connection) == b"", "b has judged the proof"
        until(lambda: any("token" in reason for reason in list(part.refusals.values())))
        part.deadline = 0.0
        thread.join()
        result = part.result()
    assert result.missing == ["a", "c"] and result.met == []
    reasons = {one.host: one.reason for one in result.unreachable}
    assert reasons["c"] == "a program answers there as c, but without the job's token"


def test_a_rendezvous_without_a_token_fails(tmp_path, monkeypatch, capsys):
    (tmp_path / "plan.json").write_text(json.dumps(plan_of(PEERS, 1)))
    monkeypatch.chdir(tmp_path)
    assert rendezvous.main() == 95
    assert "b: the job's token cannot be read from" in capsys.readouterr().err


def test_garbage_does_not_count_as_a_call():
    part, thread = begin()
    query = json.dumps({"job": "job-1", "host": "a", "nonce": "n"}).encode() + b"\n"
    for said in (
        query,
        query + b'{"proof": 7}\n',
        query + b'{"proof": "\xc3\xa9"}\n',
        query + b"[]\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"\xff\xfe\n",
        b"[]\n",
        json.dumps({"job": "x", "host": "a"}).encode() + b"\n",
    ):
        with socket.create_connection((B, 19091)) as connection:
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            heard(connection)
    part.deadline = 0.0
    thread.join()
    assert part.result().missing == ["a", "c"]


def test_a_taken_port_fails_the_rendezvous(tmp_path, monkeypatch, capsys):
    (tmp_path / "plan.json").write_text(json.dumps(plan_of(PEERS, 1)))
    give_token(tmp_path)
    monkeypatch.chdir(tmp_path)
    with addresses.listen(B, 19091):
        assert rendezvous.main() == 95
    told = "b: port 19091 on %s is in use by pid %d" % (B, os.getpid())
    assert told in capsys.readouterr().err
    assert json.loads((tmp_path / "rendezvous.json").read_text())["taken"]


def test_a_wrong_clock_fails_a_job_but_not_a_verification(tmp_path, monkeypatch, capsys):
    """The test simulates the other node, whose answers have a wrong time."""
    peers = [peer for peer in PEERS if peer.host != "c"]
    plan = plan_of(peers, 60)
    give_token(tmp_path)
    monkeypatch.chdir(tmp_path)
    for processes, code in ((plan["processes"], 95), ([], 0)):
        (tmp_path / "plan.json").write_text(json.dumps(dict(plan, processes=processes)))
        other = rendezvous.Rendezvous("j", "a", own("a"), peers, 60.0, TOKEN)
        other.answer = functools.partial(late_answer, other)
        thread = threading.Thread(target=other.run)
        thread.start()
        assert rendezvous.main() == code
        thread.join()
        found = json.loads((tmp_path / "rendezvous.json").read_text())["met"]
        assert all(abs(met["offset"] + 3) <= met["rtt"] / 2 + 0.01 for met in found), found
        said = capsys.readouterr().err
        told = ["the clocks of a and b differ by %.1f s" % -met["offset"] for met in found]
        assert any(text in said for text in told) == bool(code), (told, said)


def late_answer(other, connection, port):
    """Answer as `Rendezvous.answer` does, with a clock that is 3 s slow."""
    with connection:
        query = Query.decode(json.loads(rendezvous.read_line(connection)))
        known = (other.job, query.host, other.host, port, query.nonce, "n")
        then = time.time() - 3
        proof = seal.proof(TOKEN, "answer", then, *known)
        reply = Reply(job=other.job, host=other.host, time=then, nonce="n", proof=proof)
        connection.sendall(rendezvous.line(reply))
        other.missing[port].discard(query.host)


def test_a_complaint_about_many_processes_is_short():
    call = {"host": "c", "address": "10.0.0.3", "reason": "timed out"}
    lost = [dict(call, name="worker-%d" % index, port=9091 + index) for index in range(40)]
    report = {"unreachable": lost, "taken": [], "met": [], "limits": {"open_files": 9}}
    (line,) = rendezvous.complaints("a", RendezvousReport.decode(report))
    assert "worker-2 at 10.0.0.3:9093 and 37 more): timed out. Check that the agent" in line
    assert len(line) < 300
