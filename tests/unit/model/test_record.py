"""Typed data: what mypy and `decode` refuse, where they see it, and what old Pythons do with it."""

import copy
import os
import pathlib
import pickle
import subprocess
import sys
from typing import Mapping, Optional, Sequence

import pytest

from mxcluster.model.record import Record, encode, field, record
from mxcluster.model.shapes import Wrong, each, optional, real, table, whole, words
from tests.pythons import USES, find_python

PROJECT = pathlib.Path(__file__).resolve().parents[3]


class Event(Record, kind_key="event"):
    time: float = field(real(0, 1e11), factory=lambda: 7.5)
    role: Optional[str] = field(optional(words), default=None)


class Step(Event, kind="step"):
    step: int = field(whole(0, 2**40))
    loss: Optional[float] = field(optional(real(-1e300, 1e300)))


class End(Event, kind="end"):
    tags: Sequence[str] = field(each(words, 3), default=[])


class Message(Record, kind_key="kind"):
    pass


class Hello(Message, kind="hello"):
    pass


class OtherMessage(Message, other=True):
    kind: str = field(words)


class Node(Record):
    host: str = field(words)
    ports: Mapping[str, int] = field(table(words, whole(1, 65535)), default={})
    events: Sequence[Event] = field(each(record(Event)), default=[])
    python: str = field(words, default="3.6", key="python_version", former=("interpreter",))


class Knobs(Record, strict=True):
    batch_size: int = field(whole(1, 1000), default=64)


def test_a_record_has_its_values_and_the_defaults():
    node = Node(host="node1")
    assert (node.host, node.ports, node.python) == ("node1", {}, "3.6")
    assert node == Node(host="node1", ports={}) != node.replaced(host="node2")
    assert repr(End(time=1.5)) == "End(time=1.5, role=None, tags=[])"
    assert pickle.loads(pickle.dumps(node)) == copy.deepcopy(node) == node


def test_records_do_not_share_a_default():
    first, second = Node(host="a"), Node.decode({"host": "b"})
    first.ports["x"] = 1
    assert second.ports == Node(host="c").ports == {}


def test_a_new_record_gets_a_value_that_decoded_data_must_have():
    assert (End().time, End(time=1.5).time) == (7.5, 1.5)
    with pytest.raises(Wrong, match="is not an object with time"):
        End.decode({"tags": []})


def test_kinds_without_a_class_may_have_one_class():
    assert Message.decode({"kind": "hello"}) == Hello()
    for kind in ("other", ""):
        other = Message.decode({"kind": kind, "x": 1})
        assert other == OtherMessage(kind=kind) and other.encode() == {"kind": kind}
    for value in ({}, {"kind": ["hello"]}):
        with pytest.raises(Wrong, match="kind"):
            Message.decode(value)


def test_a_record_never_changes():
    node = Node(host="node1")
    with pytest.raises(AttributeError, match="use `replaced`"):
        node.host = "node2"
    with pytest.raises(TypeError):
        hash(node)


@pytest.mark.parametrize("values", [{}, {"host": "a", "hots": "b"}])
def test_a_missing_or_unknown_field_is_refused(values):
    with pytest.raises(TypeError, match="Node: unknown fields .* missing fields"):
        Node(**values)


class Pair(Record, nulls=True):
    left: Optional[int] = field(optional(whole()), default=None)
    right: Optional[int] = field(optional(whole()), default=None)


def test_a_class_may_write_null_for_a_missing_value():
    assert Pair(left=1).encode() == {"left": 1, "right": None}
    assert Pair.decode({"left": 1}) == Pair.decode({"left": 1, "right": None}) == Pair(left=1)


def test_json_comes_back_as_the_same_record():
    node = Node(
        host="node1",
        ports={"x": 1},
        events=[Step(time=1.0, step=3, loss=None), End(time=2.0, role="worker", tags=["a"])],
    )
    told = {
        "host": "node1",
        "ports": {"x": 1},
        # An optional field without a default is always there, one with the default None is not.
        "events": [
            {"event": "step", "time": 1.0, "step": 3, "loss": None},
            {"event": "end", "time": 2.0, "role": "worker", "tags": ["a"]},
        ],
        "python_version": "3.6",
    }
    assert node.encode() == told and Node.decode(told) == node
    assert encode(({"a": [node]},)) == [{"a": [told]}]


def test_a_class_of_two_bases_has_the_fields_of_both_in_their_order():
    class Both(Knobs, Node):
        host: str = field(words, default="node9")

    assert list(Both.FIELDS) == ["batch_size", "host", "ports", "events", "python"]
    assert Both.decode({"ports": {"a": 1}}) == Both(ports={"a": 1}) and Both().host == "node9"


def test_the_name_of_an_earlier_version_is_read():
    assert Node.decode({"host": "a", "interpreter": "2.7"}).python == "2.7"
    assert Node.decode({"host": "a", "interpreter": "2.7", "python_version": "3"}).python == "3"


WRONG = [
    (Node, [], r"value=\[\] is not an object"),
    (Node, {}, "value=.* is not an object with host"),
    (Node, {"host": "a", "ports": {"x": 0}}, r"ports\.x=0 is not a whole number from 1 to 65535"),
    (Node, {"host": "a", "events": [{"event": "x"}]}, r"events\[0\]\.event='x' is not one of step"),
    (Step, {"time": float("nan"), "step": 1, "loss": None}, "time=nan is not a number from 0"),
    (Step, {"time": 1, "step": 1.0, "loss": None}, r"step=1\.0 is not a whole number"),
    (Step, {"time": 10**400, "step": 1, "loss": None}, "time=10+.* is not a number"),
    (End, {"time": 1, "tags": ["a"] * 4}, "tags=.* is not a list of at most 3 items"),
    (Knobs, {"batch_sice": 1}, r"batch_sice='batch_sice' is not a known name.*batch_size"),
]


@pytest.mark.parametrize("cls, value, message", WRONG)
def test_a_wrong_value_is_named_with_its_place(cls, value, message):
    with pytest.raises(Wrong, match="^" + message):
        cls.decode(value)


def test_numbers_of_ansible_are_numbers():
    """Its values of templates are of subclasses of int and float."""

    class Tagged(int):
        pass

    assert Step.decode({"time": Tagged(1), "step": Tagged(2), "loss": Tagged(3)}).loss == 3


class Range(Record):
    low: int = field(whole())
    high: int = field(whole())

    def refuse_contradictions(self):
        if self.low > self.high:
            raise Wrong("at least %d" % self.low, self.high, ".high")


def test_fields_that_contradict_each_other_are_refused():
    assert Range.decode({"low": 1, "high": 1}) == Range(low=1, high=1)
    with pytest.raises(Wrong, match="^high=2 is not at least 3$"):
        Range.decode({"low": 3, "high": 2})
    with pytest.raises(Wrong, match=r"^\[1\]\.high=2 is not at least 3$"):
        each(record(Range))([{"low": 1, "high": 2}, {"low": 3, "high": 2}])


def test_an_unknown_field_is_dropped_where_no_person_wrote_it():
    assert Node.decode({"host": "a", "since 2027": [1]}) == Node(host="a")


def test_a_value_far_too_deep_is_refused():
    deep = []
    for _ in range(100000):
        deep = [deep]
    with pytest.raises(Wrong, match="host=.* is not a string"):
        Node.decode({"host": deep})


TYPED = """
from typing import Optional
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import optional, whole, words

class Point(Record):
    x: int = field(whole(0, 9))
    label: Optional[str] = field(optional(words), default=None)

class Later(Point):
    y: int = field(whole(0, 9), default=3)

right: int = Later(x=1, label="a").y + Later.decode({}).x
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "line, error",
    [
        ("", None),
        ('Point(x="1")', "arg-type"),
        ("Point()", "call-arg"),
        ("Point(x=1).x = 2", "misc"),
        ("Later.decode({}).label.upper()", "union-attr"),
        ("class Bad(Record):\n    x: int = field(words)", "assignment"),
        ('class Bad(Record):\n    x: int = field(whole(0, 9), default="a")', "assignment"),
    ],
)
def test_mypy_finds_what_is_wrong(line, error, tmp_path):
    (tmp_path / "typed.py").write_text(TYPED + line + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file="]
    found = subprocess.run(
        [*command, "--cache-dir", str(tmp_path.parent / "cache"), str(tmp_path / "typed.py")],
        env=dict(os.environ, MYPYPATH=str(PROJECT / "python")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    ).stdout
    assert ("[%s]" % error in found) if error else not found, found


DECODE = """
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import whole

class Node(Record):
    "A class whose annotation no Python needs to evaluate."
    port: "int" = field(whole(1, 9), default=3)

assert Node.decode({}).encode() == {"port": 3} == Node(port=3).encode()
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", sorted(set(USES) - {"2.7"}))
def test_records_work_under_every_python(version):
    environment = dict(os.environ, PYTHONPATH=str(PROJECT / "python"))
    subprocess.run([find_python(version), "-c", DECODE], check=True, env=environment)
