"""What a pickle cannot make a server do.  MXNet is not needed: a class of this file stands for an optimizer."""
import builtins
import collections
import copyreg
import fractions
import functools
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from mxcluster.errors import BadInput
from mxcluster.kvstore import guard


class Sgd(object):
    """An optimizer, as far as the guard knows."""

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
    return guard.read(data, guard.names_of([Sgd]))


class Reduced(object):
    """Pickles as whatever it is given."""

    def __init__(self, *reduced):
        self._reduced = reduced

    def __reduce_ex__(self, protocol):
        return self._reduced


def made(**attributes):
    sgd = Sgd()
    sgd.__dict__.update(attributes)
    return sgd


def test_plain_attributes_come_through():
    counts = {0: 3}
    there = read(pickle.dumps(made(
        lr=0.1, name="w\u00fc\u20ac\n", counts=counts, all_counts={0: counts}, sets=[{1, 2}, frozenset("a")], raw=b"\0\xff",
        ordered=collections.OrderedDict(a=1), default=collections.defaultdict(list, {1: [2]}), pair=(1, None, True, 2 ** 70),
        scalars=[np.float64(0.25), np.float32(2), np.int64(-3), np.bool_(True)], type=np.float32, dtype=np.dtype("f4"),
        array=np.arange(6, dtype="f4").reshape(2, 3), inner=made(lr=1j)), 0))
    assert type(there) is Sgd and there.update() == "as written"
    assert there.counts is there.all_counts[0]
    assert (there.lr, there.name, there.pair, there.raw) == (0.1, "w\u00fc\u20ac\n", (1, None, True, 2 ** 70), b"\0\xff")
    assert there.scalars == [0.25, 2, -3, True] and type(there.scalars[0]) is np.float64 and there.sets == [{1, 2}, {"a"}]
    assert there.array.tolist() == [[0, 1, 2], [3, 4, 5]] and there.array.dtype == there.dtype == there.type == np.float32
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
    "numpy object scalar": Reduced(np.float64(1).__reduce__()[0], (np.dtype("O"), b"cos\nsystem\n.")),
    "numpy structured dtype": np.zeros(1, dtype=[("a", "f4")]),
    "numpy dtype of objects": np.dtype("O"),
    "numpy dtype by another name": Reduced(np.dtype, ("O8",)),
    "numpy bytes": np.zeros(1, dtype="S4"),
    "a memory map": Reduced(np.memmap, (FILE,)),
    "defaultdict of what is not data": Reduced(collections.defaultdict, (os.getcwd,)),
    "attributes of a class": Reduced(copyreg._reconstructor, (Sgd, object, None), (None, {"__class__": dict})),
    "a list made of a class": Reduced(copyreg._reconstructor, (Sgd, list, [])),
}


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_a_pickle_with_a_trick_is_forbidden(name, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(guard.Forbidden):
        read(pickle.dumps(made(hidden=[FORBIDDEN[name]]), protocol))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data,words", [
    (b"\x80\x04\x8c\x0aoptimizers\x8c\x0cpickle.loads\x93.", "opcode PROTO"),        # STACK_GLOBAL, a dotted name
    (b"\x8c\x0aoptimizers\x8c\x0cpickle.loads\x93.", "opcode SHORT_BINUNICODE"),
    (b"coptimizers\npickle.loads\n.", "optimizers:pickle.loads"),                     # GLOBAL with a dotted name
    (b"coptimizers\nSgd.update\n.", "optimizers:Sgd.update"),
    (b"coptimizers.pickle\nloads\n.", "optimizers.pickle:loads"),
    (b"coptimizers\npickle\n.", "optimizers:pickle"),                                 # a module inside a module
    (b"cos\nsystem\n(S'x'\ntR.", "opcode STRING"),
    (b"ccopy_reg\n__newobj__\n.", "copyreg:__newobj__"), (b"cposix\nsystem\n(tR.", "posix:system"),
    (b"(S'x'\nios\nsystem\n.", "opcode"), (b"(V%s\nios\nsystem\n." % FILE.encode(), "opcode INST"),
    (b"Px\n.", "opcode PERSID"), (b"\x82\x01.", "opcode EXT1"),
    (b"c__builtin__\neval\n(V1\ntR.", "builtins:eval"), (b"cbuiltins\neval\n.", "builtins:eval"),
    (b"c__builtin__\nset\n(dV__doc__\nVx\nsb.", "fills type"),                        # BUILD on a class
    (b"coptimizers\nSgd\n(N(dVupdate\nc__builtin__\nset\nstb.", "fills type"),        # setattr on a class through BUILD
    (b"coptimizers\nSgd\n(tR.", "calls"),
    (b"c__builtin__\nobject\n(tR.", "calls"),
    (b"ccopy_reg\n_reconstructor\n(c__builtin__\nset\nc__builtin__\nobject\nNtR.", "makes an object of"),
    (b"ccopy_reg\n_reconstructor\n(coptimizers\nSgd\nc__builtin__\nobject\nNtRVtext\nb.", "fills Sgd with a str"),
    (b"ccopy_reg\n_reconstructor\n(coptimizers\nSgd\nc__builtin__\nobject\nNtR(dV__setstate__\ncoptimizers\nSgd\nsb(db.",
     "fills Sgd with a dict"),  # the second BUILD would call the class
    (b"c_codecs\nencode\n(Vx\nVpunycode\ntR.", "encodes to 'punycode'"), (b"c_codecs\ndecode\n.", "_codecs:decode"),
])
def test_a_pickle_written_by_hand_is_forbidden(data, words):
    with pytest.raises(guard.Forbidden, match=words):
        read(data)
    assert Sgd.update(None) == "as written" and set.__doc__ != "x"


def test_a_class_of_the_script_is_told_how_to_be_named():
    with pytest.raises(guard.Forbidden, match='my_module:MyOptimizer'):
        read(b"c__main__\nMyOptimizer\n.")


def test_declared_classes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_optimizers.py").write_text("from collections import OrderedDict\ndef function(): pass\n"
                                               "class Mine(object):\n    class Inner(object): pass\n")
    (tmp_path / "my_broken.py").write_text("1 / 0\n")
    assert guard.declared_class("my_optimizers:Mine").__name__ == "Mine"
    for text, words in [("my_optimizers:Mine.Inner", "must be module:Class"), ("my_optimizers.Mine", "must be module:Class"),
                        ("", "must be"), ("my_optimizers:Other", "defines no class"),
                        ("my_optimizers:function", "defines no class"),
                        ("my_optimizers:OrderedDict", "it has it from collections"), ("no_such_module:A", "cannot be imported"),
                        ("my_broken:A", "ZeroDivisionError")]:
        with pytest.raises(BadInput, match=words):
            guard.declared_class(text)
