"""The guard against hostile pickles in a server.

The tests run without MXNet: a class of this file replaces an optimizer.
"""

import builtins
import collections
import copyreg
import fractions
import functools
import os
import pickle
import subprocess
import sys

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from mxcluster.errors import BadInput
from mxcluster.training.kvstore import optimizer_guard


class Sgd(object):
    """An optimizer, as far as the guard reads it."""

    def update(self):
        return "as written"


# Test files have no importable name of their own.
Sgd.__module__ = "optimizers"
MODULE = type(sys)("optimizers")
MODULE.Sgd, MODULE.pickle = Sgd, pickle


@pytest.fixture(autouse=True)
def optimizers(monkeypatch):
    monkeypatch.setitem(sys.modules, "optimizers", MODULE)


def read(data):
    return optimizer_guard.read(data, optimizer_guard.names_of([Sgd]))


class Reduced(object):
    """A class that pickles as its arguments."""

    def __init__(self, *reduced):
        self._reduced = reduced

    def __reduce_ex__(self, protocol):
        return self._reduced


def made(**attributes):
    sgd = Sgd()
    sgd.__dict__.update(attributes)
    return sgd


def test_plain_attributes_are_read():
    counts = {0: 3}
    there = read(
        pickle.dumps(
            made(
                lr=0.1,
                name="w\u00fc\u20ac\n",
                counts=counts,
                all_counts={0: counts},
                sets=[{1, 2}, frozenset("a")],
                raw=b"\0\xff",
                ordered=collections.OrderedDict(a=1),
                default=collections.defaultdict(list, {1: [2]}),
                pair=(1, None, True, 2**70),
                scalars=[np.float64(0.25), np.float32(2), np.int64(-3), np.bool_(True)],
                type=np.float32,
                dtype=np.dtype("f4"),
                array=np.arange(6, dtype="f4").reshape(2, 3),
                inner=made(lr=1j),
            ),
            0,
        )
    )
    assert type(there) is Sgd and there.update() == "as written"
    assert there.counts is there.all_counts[0]
    assert (there.lr, there.name, there.pair, there.raw) == (
        0.1,
        "w\u00fc\u20ac\n",
        (1, None, True, 2**70),
        b"\0\xff",
    )
    assert (
        there.scalars == [0.25, 2, -3, True]
        and type(there.scalars[0]) is np.float64
        and there.sets == [{1, 2}, {"a"}]
    )
    assert (
        there.array.tolist() == [[0, 1, 2], [3, 4, 5]]
        and there.array.dtype == there.dtype == there.type == np.float32
    )
    assert there.default[9] == [] and there.inner.lr == 1j


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


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_a_hostile_pickle_is_forbidden(name, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(optimizer_guard.Forbidden):
        read(pickle.dumps(made(hidden=[FORBIDDEN[name]]), protocol))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data,words",
    [
        (
            b"\x80\x04\x8c\x0aoptimizers\x8c\x0cpickle.loads\x93.",
            "opcode PROTO",
        ),  # STACK_GLOBAL, a dotted name
        (b"\x8c\x0aoptimizers\x8c\x0cpickle.loads\x93.", "opcode SHORT_BINUNICODE"),
        (b"coptimizers\npickle.loads\n.", "optimizers:pickle.loads"),  # GLOBAL with a dotted name
        (b"coptimizers\nSgd.update\n.", "optimizers:Sgd.update"),
        (b"coptimizers.pickle\nloads\n.", "optimizers.pickle:loads"),
        (b"coptimizers\npickle\n.", "optimizers:pickle"),  # a module inside a module
        (b"S'x'\n.", "opcode STRING"),
        (b"cos\nsystem\n(S'x'\ntR.", "names os:system"),
        (b"ccopy_reg\n__newobj__\n.", "copyreg:__newobj__"),
        (b"cposix\nsystem\n(tR.", "posix:system"),
        (b"(S'x'\nios\nsystem\n.", "opcode"),
        (b"(V%s\nios\nsystem\n." % FILE.encode(), "opcode INST"),
        (b"Px\n.", "opcode PERSID"),
        (b"\x82\x01.", "opcode EXT1"),
        (b"c__builtin__\neval\n(V1\ntR.", "builtins:eval"),
        (b"cbuiltins\neval\n.", "builtins:eval"),
        (b"c__builtin__\nset\n(dV__doc__\nVx\nsb.", "the state of a type to a"),  # BUILD on a class
        (
            b"coptimizers\nSgd\n(N(dVupdate\nc__builtin__\nset\nstb.",
            "the state of a type to a",
        ),  # setattr on a class through BUILD
        (b"coptimizers\nSgd\n(tR.", "the pickle calls"),
        (b"c__builtin__\nobject\n(tR.", "the pickle calls"),
        (
            b"ccopy_reg\n_reconstructor\n(c__builtin__\nset\nc__builtin__\nobject\nNtR.",
            "makes an object of",
        ),
        (
            b"ccopy_reg\n_reconstructor\n(coptimizers\nSgd\nc__builtin__\nobject\nNtRVtext\nb.",
            "the state of a Sgd to a str, not to a dict",
        ),
        (
            b"ccopy_reg\n_reconstructor\n(coptimizers\nSgd\nc__builtin__\nobject\nNtR(dV__setstate__\ncoptimizers\nSgd\nsb(db.",
            "attribute '__setstate__' of a Sgd",
        ),  # the second BUILD would call the class
        (b"c_codecs\nencode\n(Vx\nVpunycode\ntR.", "encodes with 'punycode'"),
        (b"c_codecs\ndecode\n.", "_codecs:decode"),
    ],
)
def test_a_handwritten_pickle_is_forbidden(data, words):
    with pytest.raises(optimizer_guard.Forbidden, match=words):
        read(data)
    assert Sgd.update(None) == "as written" and set.__doc__ != "x"


def test_a_refusal_names_all_classes_that_are_missing_and_how_to_declare_them():
    """The names after a damaged place are unknown; a name that is allowed is never told."""
    inner = fractions.Fraction(1, 2)
    other = collections.Counter(a=1)
    data = pickle.dumps(made(lr=0.1, inner=[inner, inner], other=other, array=np.ones(3)), 0)
    with pytest.raises(optimizer_guard.Forbidden) as refusal:
        read(data)
    assert "names fractions:Fraction, collections:Counter, which servers" in str(refusal.value)
    assert '{"server_classes": ["fractions:Fraction", "collections:Counter"]}' in str(refusal.value)
    with pytest.raises(optimizer_guard.Forbidden, match="names a:b, which servers"):
        read(b"(ca\nb\nca\nb\nX\x01\x00ca\nd\n.")
    with pytest.raises(optimizer_guard.Forbidden, match="names __main__:B, which .*my_module:B"):
        read(b"c__main__\nB\nca\n")


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
SPY = b"ccopy_reg\n_reconstructor\n(coptimizers\nSpy\nc__builtin__\nobject\nNtR"
ARRAY = (
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\nt"
    b"c_codecs\nencode\n(Vb\nVlatin1\ntRtR"
)
FLOAT4 = b"cnumpy\ndtype\n(Vf4\nI0\nI1\ntR"


def array_of(shape, text, dtype=FLOAT4):
    """Return an array as protocol 0 writes it, with any shape and bytes."""
    return (
        ARRAY
        + b"(I1\n("
        + b"".join(b"L%dL\n" % length for length in shape)
        + b"t"
        + dtype
        + b"I00\nc_codecs\nencode\n(V%s\nVlatin1\ntRtb" % text
    )


@pytest.mark.parametrize(
    "data, words",
    [
        (
            array_of((2**62, 4), b""),
            "0 bytes, but a dimension with a length of 4611686018427387904",
        ),  # numpy 1.14.6 writes out of bounds
        (array_of((2**62, 4), b"1234"), "with a length of 4"),
        (array_of((2**64,), b""), "with a length of 1"),
        (array_of((-1, -1), b"1234"), "with a length of -1"),
        (array_of((2,), b"1234"), "4 bytes, which do not fit the shape"),
        (array_of((0, 2**62), b""), "with a length of 4"),
        (array_of((1,) * 33, b"1234"), "no array of numbers"),
        (array_of((1,), b"1234", b"cnumpy\ndtype\n(VO8\nI0\nI1\ntR"), "numpy's dtype 'O8'"),
        (array_of((1,), b"1234", b"Vf4\n"), "no array of numbers"),
        (ARRAY + b"p0\n(g0\nl", "before the array has numbers"),
        (ARRAY + b"2", "before the array has numbers"),
        (ARRAY, "before the array has numbers"),
        (ARRAY + b"Nb", "must be a tuple of 5 values, not a NoneType: copy the array"),
        (ARRAY + b"(I1\ntb", "must be a tuple of 5 values, not a tuple of 1: copy the array"),
        (
            SPY + b"(dV__array_interface__\n(dV" + b"data\n(I4096\nI01\ntssb",
            "attribute '__array_interface__'",
        ),
        (SPY + b"(dV_as_parameter_\nI1\nsb", "attribute '_as_parameter_'"),
        (SPY + b"(dV__class__\ncoptimizers\nSgd\nsb", "attribute '__class__'"),
        (SPY + b"(dI1\nI1\nsb", "attribute 1 of a Spy"),
        (SPY + b"I1\na", "appends to a Spy"),
        (SPY + b"I1\nI2\ns", "sets an item of a Spy"),
        (SPY + b"(dVrate\nI1\nsb", "sets 'rate', a method or property of the class Spy"),
        (SPY + b"(dVupdate\nI1\nsb", "sets 'update', a method or property of the class Spy"),
        (SPY + b"(dVlr\nI1\nsb(dVlr\nI2\nsb", "the state of a Spy twice"),
        (SPY + b"((lVlr\ntb", "the state of a Spy to a tuple, not to a dict"),
        (b"(d" + SPY + b"I1\ns", "a Spy as a key"),
        (b"(" + SPY + b"I1\nd", "a Spy as a key"),
        (b"c__builtin__\nset\n((l" + SPY + b"atR", "a Spy as a key"),
        (b"c__builtin__\nset\n(" + SPY + b"tR", "a Spy where a list"),
        (b"(d(((tttI1\ns", "a tuple as a key"),
        (b"c__builtin__\nbytearray\n(I99999999999\ntR", "encodes with 'latin-1'"),
        (b"ccollections\nOrderedDict\n((l(" + SPY + b"I1\ntatR", "a tuple where a list"),
        (b"c__builtin__\ncomplex\n(" + SPY + b"I1\ntR", "a Spy where a float"),
        (b"(c_codecs\nencode\nl", "a function where a value is required"),
        (b"L" + b"9" * 500 + b"L\n", "a number of 501 digits"),
        (b"I1\nI2\na", "appends to a int"),
        (b"(tI2\na", "appends to a tuple"),
        (b"a", "not a complete pickle"),
        (b"g7\n", "not a complete pickle"),
        (b"I1", "not a complete pickle"),
        (b"(I1\nd", "not a complete pickle"),
        (b"Ix\n", "not a complete pickle"),
    ],
)
def test_input_that_pickle_or_numpy_mishandles_is_forbidden(data, words):
    Spy.called.clear()
    with pytest.raises(optimizer_guard.Forbidden, match=words):
        optimizer_guard.read(data + b".", optimizer_guard.names_of([Sgd, Spy]))
    assert Spy.called == []


def test_arrays_are_separate_copies():
    """Also if two arrays of a pickle share their bytes."""
    text = b"c_codecs\nencode\n(V12345678\nVlatin1\ntRp1\n0"
    one = ARRAY + b"(I1\n(I2\nt" + FLOAT4 + b"I00\ng1\ntb"
    first, second = optimizer_guard.read(
        text + b"(" + one + one + b"l.", optimizer_guard.names_of([])
    )
    first[0] = 0
    assert first.flags.writeable and first.flags.owndata and second[0] != 0
    column = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert (
        read(pickle.dumps(made(array=column, none=np.empty((0,))), 0)).array.tolist()
        == column.tolist()
    )


def test_a_class_with_its_own_setstate_gets_its_attributes_through_it():
    class Own(object):
        def __setstate__(self, state):
            self.got = state

    Own.__module__ = "optimizers"
    data = b"ccopy_reg\n_reconstructor\n(coptimizers\nOwn\nc__builtin__\nobject\nNtR(dVlr\nI1\nsb."
    assert optimizer_guard.read(data, optimizer_guard.names_of([Own])).got == {"lr": 1}


PIECES = (
    [bytes([code]) for code in range(256)]
    + [b"(", b"t", b"l", b"d", b"R", b"b", b"a", b"s", b"0", b"2"] * 8
    + [
        b"I1\n",
        b"I00\n",
        b"F1.5\n",
        b"L3L\n",
        b"Vlr\n",
        b"Vf4\n",
        b"Vlatin1\n",
        b"N",
        b"p0\n",
        b"g0\n",
        b"p1\n",
        b"g1\n",
        SPY,
        SPY,
        SPY,
        ARRAY,
        FLOAT4,
        b"(tb",
        b"(dVlr\nI1\nsb",
        b"(I1\n(I1\nt" + FLOAT4 + b"I00\nc_codecs\nencode\n(V1234\nVlatin1\ntRtb",
    ]
    * 4
    + [
        b"c%s\n%s\n" % tuple(name.encode() for name in pair)
        for pair in sorted(optimizer_guard._data())
    ]
)
KNOWN = (
    list,
    dict,
    tuple,
    set,
    frozenset,
    bytearray,
    collections.OrderedDict,
    collections.defaultdict,
    Spy,
    np.ndarray,
    type(np.dtype("f4")),
    type,
) + optimizer_guard._PLAIN


CALLS = [
    b"c%s\n%s\n(" % tuple(name.encode() for name in pair) + filler * count + b"tR"
    for pair in sorted(optimizer_guard._data())
    for filler in (SPY, b"(" + SPY + b"l", b"(" + SPY + b"t", b"Vf4\n")
    for count in (0, 1, 2, 3)
]


@pytest.mark.parametrize("after", [b"", b"b", SPY + b"b", b"(I1\n" + SPY + SPY + SPY + SPY + b"tb"])
def test_no_function_calls_its_arguments(after):
    """The test combines every name with objects in every place."""
    Spy.called.clear()
    for call in CALLS + [ARRAY, FLOAT4]:
        try:
            optimizer_guard.read(call + after + b".", optimizer_guard.names_of([Spy]))
        except optimizer_guard.Forbidden:
            pass
        assert Spy.called == [], call


@hypothesis.settings(max_examples=300, derandomize=True, deadline=None, database=None)
@hypothesis.given(strategies.lists(strategies.sampled_from(PIECES), max_size=25))
def test_any_pickle_is_refused_or_plain(pieces):
    """The guard calls no method, raises Forbidden only, and returns known types only."""
    Spy.called.clear()
    try:
        found = [optimizer_guard.read(b"".join(pieces) + b".", optimizer_guard.names_of([Spy]))]
    except optimizer_guard.Forbidden:
        found = []
    while found:
        value = found.pop()
        assert isinstance(value, KNOWN) and not isinstance(
            value, (optimizer_guard._Call, optimizer_guard._Unfilled)
        )
        if type(value) in (list, tuple):
            found += value
        elif isinstance(value, dict):
            found += value.values()
        elif type(value) is Spy:
            found += vars(value).values()
    assert Spy.called == []


def test_the_refusal_of_a_class_of_the_script_says_how_to_declare_it():
    with pytest.raises(optimizer_guard.Forbidden, match="my_module:MyOptimizer"):
        read(b"c__main__\nMyOptimizer\n.")


def test_the_list_of_classes_is_the_same_whatever_a_script_has_imported(monkeypatch):
    """Otherwise a worker accepts an optimizer that the servers, without this import, refuse."""
    bases = {"mxnet.optimizer": "Optimizer", "mxnet.lr_scheduler": "LRScheduler"}
    for module, name in bases.items():
        base = type(name, (), {"__module__": module})
        made = type(sys)(module)
        setattr(made, name, base)
        monkeypatch.setitem(sys.modules, module, made)
        for where in (module + ".sgd", module + "_of_others", "mxnet.contrib.svrg", "__main__"):
            made.derived = getattr(made, "derived", []) + [
                type("Derived" + name, (base,), {"__module__": where})
            ]
    monkeypatch.setitem(sys.modules, "mxnet", type(sys)("mxnet"))
    allowed = {"%s:%s" % (cls.__module__, cls.__name__) for cls in optimizer_guard.names().made}
    assert allowed == {
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
    assert optimizer_guard.declared_class("my_optimizers:Mine").__name__ == "Mine"
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
            optimizer_guard.declared_class(text)
