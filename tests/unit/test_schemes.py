"""The table of schemes is complete, and what follows from its rows."""

import ast
import pathlib

import pytest

import mxcluster.training.kvstore
from mxcluster import schemes
from mxcluster.errors import BadInput

FOLDER = pathlib.Path(mxcluster.training.kvstore.__file__).parent
GROUPS = [[0, 2], [1]]


@pytest.mark.parametrize("scheme", schemes.SCHEMES, ids=schemes.NAMES)
def test_a_row_is_complete(scheme):
    assert scheme.title and scheme.waiting and scheme.effect
    known = (schemes.NOBODY, schemes.GROUP, schemes.EVERYBODY)
    assert scheme.waits in known and scheme.merges in known
    # A worker that waits for no other worker has only its own push in an update.
    assert scheme.merges in (schemes.NOBODY, scheme.waits) or not scheme.is_distributed
    assert bool(scheme.store) == bool(scheme.update)
    assert not scheme.with_one_group or schemes.of(scheme.with_one_group).store == ""
    for part in filter(None, (scheme.store, scheme.update)):
        module, name = part.split(":")
        body = ast.parse((FOLDER / (module + ".py")).read_text()).body
        assert name in [getattr(node, "name", None) for node in body], part


def test_a_name_without_a_row_is_refused():
    with pytest.raises(BadInput) as refusal:
        schemes.of("dist_gsynch")
    assert all(word in str(refusal.value) for word in ("dist_gsynch", "did you mean", "dist_gsync"))


def test_waiting_sets_of_each_kv():
    assert schemes.waiting_sets("dist_gsync", GROUPS) == GROUPS
    for kv in ("dist_sync", "dist_device_sync", "dist_ssync"):
        assert schemes.waiting_sets(kv, GROUPS) == [[0, 1, 2]]
    for kv in ("dist_async", "local", "device"):
        assert schemes.waiting_sets(kv, GROUPS) == [[0], [1], [2]]


def test_merged_sets_of_each_kv():
    assert schemes.merged_sets("dist_gsync", GROUPS) == GROUPS
    for kv in ("dist_sync", "dist_device_sync"):
        assert schemes.merged_sets(kv, GROUPS) == [[0, 1, 2]]
    # A worker that has ended holds up no other, so no set may name it as the cause of a stall.
    for kv in ("dist_async", "dist_ssync"):
        assert schemes.merged_sets(kv, GROUPS) == []


@pytest.mark.parametrize(
    "one, other, groups, alike",
    [
        ("dist_sync", "dist_device_sync", 1, True),
        ("dist_sync", "dist_gsync", 1, True),
        ("dist_sync", "dist_gsync", 2, False),
        ("dist_gsync", "dist_gsync", 2, True),
        ("dist_sync", "dist_async", 1, False),
        ("dist_sync", "dist_ssync", 1, False),
    ],
)
def test_schemes_that_train_alike(one, other, groups, alike):
    assert schemes.same_effect(one, other, groups) is alike
    assert schemes.same_effect(other, one, groups) is alike


def test_mxnets_other_names_belong_to_schemes_of_the_same_kind():
    assert set(schemes.ALIASES.values()) <= set(schemes.NAMES)
    assert not set(schemes.ALIASES) & set(schemes.NAMES)
    assert all(("async" in name) == ("async" in known) for name, known in schemes.ALIASES.items())
