"""The seal of messages to servers: a server opens only the job's own messages, each once."""

import os

import pytest

from mxcluster import seal
from mxcluster.errors import MxclusterError

TOKEN = b"0123456789abcdef0123456789abcdef"


def sealed(payload="text\nof \u00fc", kind="optimizer", token=TOKEN):
    return seal.sealed(token, "worker-3", kind, payload).encode("utf-8")


def test_a_sealed_message_is_opened_and_has_no_token():
    body = sealed()
    assert seal.Opener(TOKEN).opened(body) == (
        "worker-3",
        "optimizer",
        "text\nof \u00fc".encode("utf-8"),
    )
    assert TOKEN not in body and b"\0" not in body


@pytest.mark.parametrize(
    "body", [None, b"", b"cos\nsystem\n.", b"mxcluster 1 a b c\noptimizer\n", b"mxcluster 1 \n\n"]
)
def test_a_message_without_a_seal_is_refused(body):
    with pytest.raises(seal.NotSealed, match="is not sealed"):
        seal.Opener(TOKEN).opened(body)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: sealed(token=b"f" * 32),
        lambda body: body + b".",
        lambda body: body.replace(b"worker-3", b"worker-4"),
        lambda body: body.replace(b"\noptimizer\n", b"\nsave\n"),
        lambda body: body.replace(b"\ntext\n", b"t\next\n"),
    ],
)
def test_a_changed_or_foreign_message_is_refused(change):
    with pytest.raises(seal.NotSealed, match="a wrong token"):
        seal.Opener(TOKEN).opened(change(sealed()))


def test_a_replayed_message_is_refused():
    opener, body = seal.Opener(TOKEN), sealed()
    opener.opened(body)
    with pytest.raises(seal.NotSealed, match="replay of an earlier message of worker-3"):
        opener.opened(body)
    opener.opened(sealed())  # the same text in a new message


def test_the_token_must_exist_and_be_private_and_long(tmp_path):
    with pytest.raises(MxclusterError, match="token cannot be read"):
        seal.read_token(str(tmp_path))
    (tmp_path / "token").write_bytes(TOKEN + b"\n")
    os.chmod(str(tmp_path / "token"), 0o640)
    with pytest.raises(MxclusterError, match="can be read by other users .mode 0640"):
        seal.read_token(str(tmp_path))
    os.chmod(str(tmp_path / "token"), 0o600)
    assert seal.read_token(str(tmp_path)) == TOKEN
    (tmp_path / "token").write_bytes(b"short")
    with pytest.raises(MxclusterError, match="shorter than 32"):
        seal.read_token(str(tmp_path))
