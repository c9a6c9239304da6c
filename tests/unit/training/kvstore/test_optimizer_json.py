"""The JSON of an optimizer, and the refusal of hostile JSON and of pickles on a server.

The tests run without MXNet: a class of this file replaces an optimizer.
"""

import base64
import builtins
import collections
import copyreg
import fractions
import functools
import json
import math
import os
import pickle
import subprocess
import sys
import threading

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from mxcluster.errors import BadInput
from mxcluster.training.kvstore import optimizer_json, server_classes
from mxcluster.training.kvstore.optimizer_json import Forbidden


class Sgd(object):
    """An optimizer, as far as the reader sees it."""

    def update(self):
        return "as written"


# Test files have no importable name of their own.
Sgd.__module__ = "optimizers"
MODULE = type(sys)("optimizers")
MODULE.Sgd, MODULE.pickle = Sgd, pickle


@pytest.fixture(autouse=True)
def optimizers(monkeypatch):
    monkeypatch.setitem(sys.modules, "optimizers", MODULE)


def sent(value, *classes):
    """Return `value` as it arrives on a server."""
    allowed = server_classes.by_name([Sgd, *classes])
    return optimizer_json.decode(optimizer_json.encode(value, allowed), allowed)


def read(form, *classes):
    """Return the value of JSON that a hostile worker has written itself."""
    text = form if isinstance(form, str) else json.dumps(form)
    return optimizer_json.decode(text, server_classes.by_name([Sgd, *classes]))


class Reduced(object):
    """A class that pickles as its arguments."""

    def __init__(self, *reduced):
        self._reduced = reduced

    def __reduce_ex__(self, protocol):
        return self._reduced


def made(cls=Sgd, **attributes):
    found = cls()
    found.__dict__.update(attributes)
    return found


def test_plain_attributes_arrive():
    counts = {0: 3}
    there = sent(
        made(
            lr=0.1,
            name="w\u00fc\u20ac\n\0\ud800",
            counts=counts,
            all_counts={0: counts},
            sets=[{1, 2}, frozenset("a")],
            raw=b"\0\xff",
            buffer=bytearray(b"\xfe"),
            ordered=collections.OrderedDict(b=1, a=2),
            default=collections.defaultdict(list, {(1, None): [2]}),
            missing=collections.defaultdict(None),
            pair=(1, None, True, 2**70, -0.0),
            scalars=[np.float64(0.25), np.float32(2), np.int64(-3), np.bool_(True)],
            type=np.float32,
            classes=[dict, Sgd],
            dtype=np.dtype("f4"),
            array=np.arange(6, dtype=">f4").reshape(2, 3).T,
            bounds=(math.inf, -math.inf),
            inner=made(lr=complex(-0.0, 1)),
        )
    )
    assert type(there) is Sgd and there.update() == "as written"
    assert there.counts is there.all_counts[0]
    assert (there.lr, there.name, there.pair, there.raw, there.buffer) == (
        0.1,
        "w\u00fc\u20ac\n\0\ud800",
        (1, None, True, 2**70, 0.0),
        b"\0\xff",
        b"\xfe",
    )
    assert math.copysign(1, there.pair[4]) == -1 and type(there.pair[2]) is bool
    assert there.scalars == [0.25, 2, -3, True] and there.sets == [{1, 2}, {"a"}]
    assert [type(one) for one in there.scalars] == [np.float64, np.float32, np.int64, np.bool_]
    assert there.array.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert there.array.dtype == there.dtype == there.type == np.float32
    assert there.classes == [dict, Sgd] and there.bounds == (math.inf, -math.inf)
    assert list(there.ordered.items()) == [("b", 1), ("a", 2)]
    assert (
        there.default == {(1, None): [2]}
        and there.default[9] == []
        and repr(there.inner.lr) == "(-0+1j)"
    )
    assert math.isnan(sent(made(rate=math.nan)).rate)


def test_shared_and_circular_values_stay_so():
    one, array = made(lr=[1]), np.ones(2)
    one.parts = collections.OrderedDict(me=one, lr=one.lr, first=array, second=array)
    there = sent(one)
    assert there.parts["me"] is there and there.parts["lr"] is there.lr
    assert there.parts["first"] is there.parts["second"] is not array


def test_arrays_are_separate_copies():
    first, second = sent([np.ones(2), np.ones(2)])
    first[0] = 0
    assert first.flags.writeable and first.flags.owndata and second[0] == 1
    empty, single = sent([np.empty((0,)), np.array(2.5)])
    assert empty.shape == (0,) and single.shape == () and single == 2.5


FILE = "a-file-that-must-not-be"
FORBIDDEN = {
    "os.system": Reduced(os.system, ("touch " + FILE,)),
    "eval": Reduced(eval, ("open(%r, 'w')" % FILE,)),
    "exec": Reduced(exec, ("open(%r, 'w')" % FILE,)),
    "open": Reduced(open, (FILE, "w")),
    "getattr": Reduced(getattr, (made(), "update")),
    "import": Reduced(builtins.__import__, ("os",)),
    "type": Reduced(type, ("Optimizer", (), {})),
    "partial": Reduced(functools.partial, (os.system, "touch " + FILE)),
    "partial of what is listed": Reduced(functools.partial, (set,)),
    "Popen": Reduced(subprocess.Popen, (["touch", FILE],)),
    "pickle.loads": Reduced(pickle.loads, (b"cos\nsystem\n(S'touch %s'\ntR." % FILE.encode(),)),
    "a class of no list": fractions.Fraction(1, 2),
    "a listed class, called": Reduced(Sgd, ()),
    "a plain class that is listed as a value": Reduced(dict, ()),
    "numpy's loader": Reduced(np.load, (FILE,)),
    "numpy objects": np.array([made()], dtype=object),
    "numpy object scalar": Reduced(
        np.float64(1).__reduce__()[0], (np.dtype("O"), b"cos\nsystem\n.")
    ),
    "numpy structured dtype": np.zeros(1, dtype=[("a", "f4")]),
    "numpy dtype of objects": np.dtype("O"),
    "numpy dtype by another name": Reduced(np.dtype, ("O8",)),
    "numpy bytes": np.zeros(1, dtype="S4"),
    "a memory map": Reduced(np.memmap, (FILE,)),
    "defaultdict of what is not data": Reduced(collections.defaultdict, (os.getcwd,)),
    "attributes of a class": Reduced(
        copyreg._reconstructor, (Sgd, object, None), (None, {"__class__": dict})
    ),
    "a list made of a class": Reduced(copyreg._reconstructor, (Sgd, list, [])),
}
UNWRITTEN = dict(
    FORBIDDEN,
    **{
        "a function": os.getcwd,
        "a lambda": lambda: 1,
        "a module": os,
        "a lock": threading.Lock(),
        "a generator": iter([]),
        "a class of no list, as a value": Reduced,
        "a subclass of a container": collections.Counter("a"),
        "a subclass of an array": np.zeros(2).view(np.matrix),
        "numpy's time": np.datetime64("2020-01-01"),
        "numpy's wide number": np.zeros(1, dtype=np.longdouble),
        "defaultdict of a function": collections.defaultdict(os.getcwd),
        "an object as a key": {made(): 1},
        "a nested key": {((1,),): 1},
        "a protocol's name": made(__class_getitem__=1),
        "a method's name": made(update=1),
        "501 digits": 10**500,
        "5001 digits": 10**5000,
    },
)


@pytest.mark.parametrize("name", sorted(UNWRITTEN))
def test_a_worker_refuses_what_is_no_data(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Forbidden):
        sent(made(hidden=[UNWRITTEN[name]]))
    assert list(tmp_path.iterdir()) == []


def test_deep_values_are_refused():
    deep = ()
    for _ in range(5000):
        deep = (deep,)
    with pytest.raises(Forbidden, match="no form in JSON"):
        sent(made(deep=deep))
    for brackets in ("[" * 100000, "[" * 100000 + "]" * 100000):
        with pytest.raises(Forbidden, match="not the JSON of an optimizer"):
            read(brackets)


HANDWRITTEN = [
    b"\x80\x04\x8c\x0aoptimizers\x8c\x0cpickle.loads\x93.",  # STACK_GLOBAL, a dotted name
    b"coptimizers\npickle.loads\n.",
    b"coptimizers\nSgd.update\n.",
    b"cos\nsystem\n(S'x'\ntR.",
    b"(V%s\nios\nsystem\n." % FILE.encode(),
    b"ccopy_reg\n_reconstructor\n(coptimizers\nSgd\nc__builtin__\nobject\nNtR(dV__setstate__\n"
    b"coptimizers\nSgd\nsb(db.",
    b"c_codecs\nencode\n(Vx\nVpunycode\ntR.",
    b"coptimizers\nSgd\n(tR.",
    b"I1\n.",
    b"N.",
    b"(lp0\n.",
]


@pytest.mark.parametrize("protocol", range(5))
def test_a_pickle_is_refused(protocol, tmp_path, monkeypatch):
    """No pickle is valid JSON, whether hostile or of an optimizer."""
    monkeypatch.chdir(tmp_path)
    pickles = [pickle.dumps(made(hidden=[one]), protocol) for one in FORBIDDEN.values()]
    for data in pickles + HANDWRITTEN + [pickle.dumps(made(lr=0.1), protocol)]:
        with pytest.raises(Forbidden, match=r"not the JSON of an optimizer .*set_optimizer\(\)"):
            read(data.decode("utf-8", "replace"))
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_names_all_classes_that_are_missing_and_how_to_declare_them():
    """Also classes inside of a missing one. A name that is allowed is never among them."""
    outer = made(Reduced, inside=[made(), collections.Counter(a=1), os.getcwd])
    with pytest.raises(Forbidden) as refusal:
        sent(made(lr=0.1, parts=[fractions.Fraction(1, 2), outer], again=[outer, np.ones(3)]))
    names = ["fractions:Fraction", "%s:Reduced" % Reduced.__module__, "collections:Counter"]
    assert "has objects of %s, which servers" % ", ".join(names) in str(refusal.value)
    assert json.dumps({"server_classes": names}) in str(refusal.value)
    with pytest.raises(Forbidden, match="of __main__:Mine, which .*my_module:Mine"):
        read({"object": ["__main__:Mine", {}]})


class Spy(object):
    """A listed class whose methods record their calls."""

    called = []

    def __setattr__(self, name, value):
        self.called.append("__setattr__")

    def _tell(self, *_):
        self.called.append("a method")
        return self

    append = extend = update = __setitem__ = __call__ = __eq__ = __ne__ = __hash__ = __iter__ = (
        __len__
    ) = __bool__ = _tell
    __array__ = __index__ = __int__ = __float__ = __repr__ = __str__ = __format__ = __contains__ = (
        __getattr__
    ) = _tell
    rate = property(_tell, _tell)


Spy.__module__ = "optimizers"
MODULE.Spy = Spy
SPY = {"object": ["optimizers:Spy", {}]}


def spy(**attributes):
    return {"object": ["optimizers:Spy", attributes]}


def array_of(shape, data, dtype="float32"):
    data = base64.b64encode(data).decode()
    return {"array": {"dtype": dtype, "shape": shape, "data": data}}


class Reducing(Sgd):
    def __reduce__(self):
        return os.getcwd, ()


class Slotted(Sgd):
    __slots__ = ("hidden",)


class OfDict(dict):
    pass


@pytest.mark.parametrize(
    "form, words",
    [
        # numpy 1.14.6 writes out of bounds
        (array_of([2**62, 4], b""), "0 bytes, which do not fit the shape"),
        (array_of([2**64], b""), r"shape\[0\]=18446744073709551616 is not a whole number"),
        (array_of([-1, -1], b"1234"), r"shape\[0\]=-1 is not a whole number"),
        (array_of([True], b"1234"), r"shape\[0\]=True is not"),
        (array_of([2], b"1234"), "4 bytes, which do not fit the shape"),
        (array_of([0, 2**62], b""), "0 bytes, which do not fit the shape"),
        (array_of([1] * 33, b"1234"), "shape=.* is not a list of at most 32 items"),
        (array_of([1], b"1234" * 2, "O"), "dtype='O' is not one of bool"),
        (array_of([1], b"1234", "object"), "dtype='object' is not one of bool"),
        (array_of([1], b"1234", ["f4"]), "dtype=.* is not one of bool"),
        ({"array": {"dtype": "float32", "shape": [1], "data": "AA_="}}, "is not base64"),
        ({"array": {"dtype": "float32", "shape": [1], "data": "AAA"}}, "padding"),
        ({"array": {}}, "an object with dtype, shape, data"),
        ({"dtype": "O"}, "is not one of bool"),
        ({"float": SPY}, "is not a string"),
        ({"complex": [SPY, 2.0]}, "is not a string"),
        ({"bytes": "\u00fc"}, "is not base64"),
        (spy(__array_interface__={"dict": []}), "attribute '__array_interface__'"),
        (spy(_as_parameter_=1), "attribute '_as_parameter_'"),
        (spy(__class__={"class": "optimizers:Sgd"}), "attribute '__class__'"),
        (spy(rate=1), "attribute 'rate' is a method or property of the class Spy"),
        (spy(update=1), "attribute 'update' is a method or property of the class Spy"),
        ({"object": ["optimizers:Spy", [["lr", 1]]]}, "attributes of an object are a JSON object"),
        ({"object": ["optimizers:Spy", {}, {}]}, "list of 2"),
        ({"object": ["optimizers:Spy", {}], "same": 0}, "too many values"),
        ({"object": [["optimizers:Spy"], {}]}, "is not a string"),
        ({"object": ["optimizers:Sgd.update", {}]}, "optimizers:Sgd.update, which servers do not"),
        ({"object": ["optimizers:pickle", {}]}, "optimizers:pickle, which servers do not"),
        ({"object": ["os:system", {}]}, "os:system, which servers do not accept"),
        ({"object": ["builtins:dict", {}]}, "builtins:dict, which servers do not accept"),
        ({"object": ["numpy:ndarray", {}]}, "numpy:ndarray, which servers do not accept"),
        ({"object": ["optimizers:Reducing", {}]}, "class without __reduce__"),
        ({"object": ["optimizers:Slotted", {}]}, "class without __reduce__.. and __slots__"),
        ({"object": ["optimizers:OfDict", {}]}, "without a built-in base class such as dict"),
        ({"class": "os:system"}, "os:system, which servers do not accept"),
        ({"call": ["os:system", "x"]}, "the tag 'call' is unknown"),
        ({}, "not the JSON of an optimizer"),
        ({"same": 0}, "is not a whole number"),
        ([{"same": -1}], "is not a whole number"),
        ({"dict": [[SPY, 1]]}, "a Spy as a key"),
        ({"dict": [[[], 1]]}, "a list as a key"),
        ({"dict": [[1]]}, "list of 2"),
        ({"dict": {"a": 1}}, "a list is required"),
        ({"dict": [[{"tuple": [{"tuple": []}]}, 1]]}, "a tuple as a key"),
        ({"set": [SPY]}, "a Spy as a key"),
        ({"set": SPY}, "a list is required"),
        ({"defaultdict": [SPY, []]}, "use one of None, list, dict, set, int, float"),
        ({"defaultdict": [{"class": "builtins:bytes"}, []]}, "use one of None, list, dict"),
        ({"defaultdict": [{"class": "optimizers:Spy"}, []]}, "use one of None, list, dict"),
        ("9" * 501, "a number has 501 digits"),
        ("[NaN]", "not the JSON of an optimizer"),
        ("", "not the JSON of an optimizer"),
    ],
)
def test_hostile_json_is_refused(form, words):
    for cls in (Reducing, Slotted, OfDict):
        cls.__module__ = "optimizers"
    Spy.called.clear()
    with pytest.raises(Forbidden, match=words):
        read(form, Spy, Reducing, Slotted, OfDict)
    assert Spy.called == [] and Sgd.update(None) == "as written"


def test_a_class_with_its_own_setstate_gets_its_attributes_through_it():
    class Own(object):
        def __getstate__(self):
            return {"lr": self.rate}

        def __setstate__(self, state):
            self.got = state

    class Listing(Own):
        def __getstate__(self):
            return [1]

    Own.__module__ = Listing.__module__ = "optimizers"
    assert vars(sent(made(Own, rate=0.5), Own)) == {"got": {"lr": 0.5}}
    with pytest.raises(Forbidden, match="return a dict from __getstate__"):
        sent(made(Listing), Listing)
    odd = made()
    odd.__dict__[1] = 2  # JSON would make a string of this name
    with pytest.raises(Forbidden, match="return a dict from __getstate__"):
        sent(odd)


TAGS = sorted(optimizer_json._Reader._READERS)
LEAVES = strategies.one_of(
    strategies.sampled_from(
        [None, True, 0, 1, -1, 2**62, 1.5, "", "inf", "float32", "AAAA", "__class__", "lr"]
        + ["optimizers:Spy", "optimizers:Sgd", "builtins:list", "numpy:float32", "os:system"]
    )
)
FORMS = strategies.recursive(
    LEAVES,
    lambda inner: strategies.one_of(
        strategies.lists(inner, max_size=3),
        strategies.dictionaries(strategies.sampled_from(TAGS), inner, min_size=1, max_size=1),
        strategies.dictionaries(strategies.sampled_from(["lr", "rate", "a"]), inner, max_size=2),
        strategies.builds(
            lambda cls, parts: {"object": [cls, parts]},
            strategies.sampled_from(["optimizers:Spy", "optimizers:Sgd"]),
            strategies.dictionaries(strategies.sampled_from(["lr", "b"]), inner, max_size=2),
        ),
        strategies.builds(
            lambda dtype, shape, data: {"array": {"dtype": dtype, "shape": shape, "data": data}},
            strategies.sampled_from(["float32", "int8", "O"]),
            inner,
            strategies.sampled_from(["AAAA", "", "AAAAAA==", 1]),
        ),
    ),
    max_leaves=12,
)
KNOWN = (Spy, Sgd, np.ndarray, np.dtype, type) + optimizer_json._CONTAINERS + optimizer_json._PLAIN


@pytest.mark.slow
@hypothesis.settings(max_examples=300, derandomize=True, deadline=None, database=None)
@hypothesis.given(FORMS)
def test_any_json_is_refused_or_plain(form):
    """The reader calls no method, raises Forbidden only, and returns known types only."""
    Spy.called.clear()
    found, seen = [], []
    try:
        found.append(read(form, Spy))
    except Forbidden:
        pass
    while found:
        value = found.pop()
        assert isinstance(value, KNOWN)
        if any(value is one for one in seen):
            continue
        seen.append(value)
        if type(value) in (list, tuple):
            found += value
        elif isinstance(value, dict):
            found += value.values()
        elif type(value) in (Spy, Sgd):
            found += vars(value).values()
    assert Spy.called == []


def test_the_list_of_classes_is_the_same_whatever_a_script_has_imported(monkeypatch):
    """Otherwise a worker accepts an optimizer that the servers, without this import, refuse."""
    for module, name in (("mxnet.optimizer", "Optimizer"), ("mxnet.lr_scheduler", "LRScheduler")):
        base = type(name, (), {"__module__": module})
        made = type(sys)(module)
        setattr(made, name, base)
        made.derived = [  # as long as they live, their base lists them
            type("Derived" + name, (base,), {"__module__": where})
            for where in (module + ".sgd", module + "_of_others", "mxnet.contrib.svrg", "__main__")
        ]
        monkeypatch.setitem(sys.modules, module, made)
    monkeypatch.setitem(sys.modules, "mxnet", type(sys)("mxnet"))
    assert set(server_classes.allowed()) == {
        "mxnet.optimizer:Optimizer",
        "mxnet.optimizer.sgd:DerivedOptimizer",
        "mxnet.lr_scheduler:LRScheduler",
        "mxnet.lr_scheduler.sgd:DerivedLRScheduler",
    }


def test_declared_classes_are_imported_or_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_optimizers.py").write_text(
        "from collections import OrderedDict\ndef function(): pass\n"
        "class Mine(object):\n    class Inner(object): pass\n"
    )
    (tmp_path / "my_broken.py").write_text("1 / 0\n")
    assert server_classes.declared_class("my_optimizers:Mine").__name__ == "Mine"
    for text, words in [
        ("my_optimizers:Mine.Inner", "must be module:Class"),
        ("my_optimizers.Mine", "must be module:Class"),
        ("", "must be"),
        ("my_optimizers:Other", "defines no class"),
        ("my_optimizers:function", "defines no class"),
        ("my_optimizers:OrderedDict", "use collections:OrderedDict"),
        ("no_such_module:A", "cannot be imported"),
        ("my_broken:A", "ZeroDivisionError"),
    ]:
        with pytest.raises(BadInput, match=words):
            server_classes.declared_class(text)
