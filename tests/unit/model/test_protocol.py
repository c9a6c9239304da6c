"""The commands of the controller: their table, and requests of the last version."""

import json

import pytest

from mxcluster.entry.commands import FUNCTIONS
from mxcluster.errors import BadInput
from mxcluster.model import protocol
from mxcluster.model.answers import Answer
from mxcluster.model.protocol import Collect, Piece, Prepare, Start, Stop, Wait
from tests.plans import part_of

# The request of the command wait from a controller of version 0.1. The program on a node of this
# version needs all of these names in each request.
LAST = dict.fromkeys(("file", "jobs_dir", "output", "plan", "reader", "script", "spool", "token"))
LAST.update(command="wait", check=False, job="", job_dir="/jobs/j", lines=20, most=1048576)
LAST.update(offset=0, peer=False, request={}, seconds=5, secret_env={}, told="", took="", user="")


def test_each_command_has_a_function_and_an_answer():
    assert set(FUNCTIONS) == set(protocol.COMMANDS.values())
    assert not [cls for cls in protocol.COMMANDS.values() if cls.ANSWER is Answer]


def test_a_command_that_only_reads_reports_no_change():
    reading = {name for name, cls in protocol.COMMANDS.items() if cls.READS}
    assert reading == {"look", "record", "check", "status", "logs", "plan", "jobs"}
    assert not any(cls.READS and cls.CHANGES for cls in protocol.COMMANDS.values())


def test_both_ends_understand_the_last_version():
    assert protocol.read(json.dumps(LAST).encode()) == Wait(job_dir="/jobs/j")
    assert set(LAST) <= set(json.loads(Wait(job_dir="/jobs/j").to_bytes().decode()))


def test_a_request_arrives_as_it_was_sent():
    sent = Start(
        job_dir="~/jobs/j",
        user="mxcluster",
        plan=part_of({"name": "w", "role": "worker", "command": ["sh", "-c", "a\tb"]}),
        secret_env={"K": "two\nlines"},
        token="t" * 64,
        script="MTIz",
    )
    assert protocol.read(sent.to_bytes()) == sent
    assert set(sent.secrets()) == {"two\nlines", "t" * 64} and sent.job_id == "j"
    assert Stop(job_dir="/j").secrets() == []


def test_paths_on_a_node_are_absolute(monkeypatch):
    monkeypatch.setenv("HOME", "/home/mx")
    given = Collect(job_dir="~/jobs/./j", output="/o/../x.tar").on_node()
    assert (given.job_dir, given.output, given.spool) == ("/home/mx/jobs/j", "/x.tar", None)


def test_a_command_takes_over_the_fields_of_another():
    wait = Wait(job_dir="/j", user="mx", took="mlp-0001", check=True)
    piece = wait.turned_into(Piece, file="mlp-0002.params")
    assert piece == Piece(job_dir="/j", user="mx", check=True, file="mlp-0002.params")
    start = Start(job_dir="/j", plan=part_of(), token="t")
    assert start.turned_into(Prepare) == Prepare(job_dir="/j", plan=part_of(), token="t")


WRONG = [
    ({"command": "stop", "job_dir": "jobs/j"}, "job_dir='jobs/j' is not an absolute path, or"),
    ({"command": "stop", "job_dir": "/j", "user": "-x"}, "user='-x' is not the name of a user"),
    ({"command": "jobs", "jobs_dir": "/j", "job": "../x"}, "job='../x' is not the id of a job"),
    ({"command": "wait", "job_dir": "/j", "seconds": float("nan")}, "seconds=nan is not a number"),
    ({"command": "piece", "job_dir": "/j", "file": "../x"}, "file='../x' is not the name of"),
    ({"command": "prepare", "job_dir": "/j"}, "is not an object with plan"),
    ({"command": "start", "job_dir": "/j", "script": "%"}, "script='%' is not a zip file in base"),
]


@pytest.mark.parametrize("value, words", WRONG)
def test_a_wrong_request_is_refused(value, words):
    with pytest.raises(BadInput, match=words):
        protocol.read(json.dumps(value).encode())
