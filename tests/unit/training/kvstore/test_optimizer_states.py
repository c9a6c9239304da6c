"""Cutting and joining optimizer states; the tests replace MXNet, which the module imports."""

import importlib.util
import pathlib
import sys
import types

import numpy as np
import pytest

from mxcluster.errors import BadInput

PATH = (
    pathlib.Path(__file__).parents[4]
    / "python"
    / "mxcluster"
    / "training"
    / "kvstore"
    / "optimizer_states.py"
)


@pytest.fixture
def states(monkeypatch):
    fake = types.ModuleType("mxnet")
    fake.nd = fake.optimizer = types.ModuleType("mxnet.optimizer")
    fake.optimizer.get_updater = None
    monkeypatch.setitem(sys.modules, "mxnet", fake)
    monkeypatch.setitem(sys.modules, "mxnet.optimizer", fake.optimizer)
    spec = importlib.util.spec_from_file_location("states", str(PATH))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def part(**content):
    return {name: np.array(value) for name, value in content.items()}


def test_split_arrays_are_joined_by_rank_and_others_stay_unchanged(states):
    found = states.joined(
        [
            part(size_0=3, state_0_0=[0.0, 1, 2], state_0_1=[7.0], size_1=2, state_1_0=[8.0, 9]),
            part(size_0=2, state_0_0=[3.0, 4], state_0_1=[7.0], size_2=4),
        ]
    )
    assert found[0][0] == 5 and [list(state) for state in found[0][1]] == [[0, 1, 2, 3, 4], [7]]
    assert found[1][0] == 2 and list(found[1][1][0]) == [8, 9] and found[2] == (4, [])


@pytest.mark.parametrize("total", [5, 7, 100, 101, 2000])
@pytest.mark.parametrize("before,after", [(1, 3), (3, 2), (4, 4), (2, 1)])
def test_an_array_survives_another_number_of_servers(states, total, before, after):
    whole = np.arange(total, dtype="f4")

    def cut(servers):
        edges = [int(np.floor(total / servers * rank + 0.5)) for rank in range(servers + 1)]
        return [whole[begin:end] for begin, end in zip(edges, edges[1:])]

    size, (joined,) = states.joined(
        [part(size_4=len(piece), state_4_0=piece) for piece in cut(before)]
    )[4]
    assert size == total and (joined == whole).all()
    for rank, piece in enumerate(cut(after)):
        assert (states.share(joined, total, len(piece), rank, after) == piece).all()


@pytest.mark.parametrize("total", [48, 1000, 1001, 8192, 10007])
@pytest.mark.parametrize("servers", [2, 3])
def test_compressed_gradients_are_cut_in_units_of_16(states, monkeypatch, total, servers):
    """Once the states of such a weight were refused at a resume, or given to a wrong part."""
    whole, words = np.arange(total, dtype="f4"), -(-total // 16)
    # kvstore_dist.h, EncodeCompressedKey: all servers but the last get whole words of 16 numbers.
    edges = [16 * int(np.floor(words / servers * rank + 0.5)) for rank in range(servers)] + [total]
    monkeypatch.setenv("MXCLUSTER_COMPRESSION", "2bit")
    for rank in range(servers):
        begin, end = edges[rank], edges[rank + 1]
        piece = states.share(whole, total, end - begin, rank, servers, states.unit_of_cuts())
        assert (piece == whole[begin:end]).all()
    monkeypatch.delenv("MXCLUSTER_COMPRESSION")
    assert states.unit_of_cuts() == 1


def test_an_array_of_another_network_is_refused(states):
    with pytest.raises(
        BadInput,
        match="server 1 of 2 holds 4 of 10 numbers of a weight, but the checkpoint requires 5",
    ):
        states.share(np.zeros(10), 10, 4, 1, 2)


class Weight(list):
    """A vector of MXNet as far as an update needs it."""

    @property
    def shape(self):
        return (len(self),)


def test_an_assigned_key_takes_the_sum_and_no_optimizer_sees_it(states, monkeypatch, tmp_path):
    updated = []

    class Updater:
        states = {}

        def __call__(self, index, grad, weight):
            updated.append(index)
            self.states[index] = None

    monkeypatch.setattr(states, "get_updater", lambda optimizer: Updater())
    updates = states.Updates(object(), {2: (2, [np.ones(2)])})
    updates.assign(2)
    updates(0, Weight([1.0]), Weight([2.0]))
    speeds = Weight([0.0, 0.0])
    updates(2, Weight([300.0, 100.0]), speeds)
    assert speeds == [300.0, 100.0] and updated == [0]
    # A checkpoint has the parameter alone.
    saved = {}
    monkeypatch.setattr(
        states, "save", lambda folder, name, number, found, *of: saved.update(found)
    )
    updates.save(str(tmp_path), "mlp-0001", "id")
    assert list(saved) == ["size_0"]


def test_a_parameter_cannot_become_an_assigned_key(states, monkeypatch):
    monkeypatch.setattr(states, "get_updater", lambda optimizer: lambda *args: None)
    updates = states.Updates(object(), {})
    updates(1, Weight([1.0]), Weight([2.0]))
    with pytest.raises(BadInput, match="the key 1 holds a parameter"):
        updates.assign(1)
