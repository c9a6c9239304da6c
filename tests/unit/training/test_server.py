"""A server carries out the messages of workers; the tests need no MXNet."""

import types

import pytest

from mxcluster.training import server


class Forbidden(Exception):
    pass


@pytest.mark.parametrize("update", [None, object()], ids=["no optimizer", "another scheme"])
def test_only_updates_of_dist_sync_take_assigned_keys(update):
    commands = types.SimpleNamespace(
        _update=update, _json=types.SimpleNamespace(Forbidden=Forbidden)
    )
    with pytest.raises(Forbidden, match="store only model parameters: use kv=dist_sync"):
        server.Commands._assign(commands, types.SimpleNamespace(payload=b"6"))


def test_the_number_of_an_assigned_key_reaches_the_update():
    told = []
    update = types.SimpleNamespace(assign=told.append)
    server.Commands._assign(
        types.SimpleNamespace(_update=update), types.SimpleNamespace(payload=b"6")
    )
    assert told == [6]
