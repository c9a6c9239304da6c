"""The key of mxcluster_ssh with the real ssh-keygen, under the Pythons of nodes."""

import os
import stat
import subprocess

import pytest

from tests import ansible_modules
from tests.pythons import python_of

PYTHONS = ["2.7", "controller"]


@pytest.fixture(params=PYTHONS)
def provide(request, tmp_path):
    """Return a function that runs the module for a user with the home tmp_path/home."""
    (tmp_path / "home").mkdir()
    lie = (
        "import os, pwd; entry = pwd.getpwuid(os.geteuid()); pwd.getpwuid = lambda _: "
        "type(entry)(entry[:5] + (%r,) + entry[6:]); " % str(tmp_path / "home")
    )

    def run(check=False, **options):
        return ansible_modules.run(
            "mxcluster_ssh",
            tmp_path,
            under=python_of(request.param),
            before=lie,
            check=check,
            key=dict(name="id_ed25519", **options),
        )

    return run


@pytest.mark.slow
def test_a_key_is_created_once(provide, tmp_path):
    key = tmp_path / "home" / ".ssh" / "id_ed25519"
    bare = provide(check=True)
    assert bare["changed"] and bare["public_key"] == "" and not key.exists()
    made = provide()
    assert made["changed"] and made["public_key"].startswith("ssh-ed25519 AAAA"), made
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (key, key.parent)]
    assert modes == [0o600, 0o700]
    assert sorted(os.listdir(str(key.parent))) == ["id_ed25519", "id_ed25519.pub"]
    again = provide()
    assert not again["changed"] and again["public_key"] == made["public_key"]


@pytest.mark.slow
def test_a_torn_pair_is_repaired(provide, tmp_path):
    made, public = provide(), tmp_path / "home" / ".ssh" / "id_ed25519.pub"
    for broken in ("", "ssh-ed25519 AAAAanother"):
        public.write_text(broken)
        assert provide(check=True)["changed"] and public.read_text() == broken
        assert provide()["changed"] and public.read_text().split() == made["public_key"].split()


@pytest.mark.slow
def test_a_key_with_a_passphrase_is_left_alone(provide, tmp_path):
    key = tmp_path / "home" / ".ssh" / "id_ed25519"
    key.parent.mkdir(mode=0o700)
    subprocess.check_call(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret words", "-f", str(key)]
    )
    before, answer = key.read_bytes(), provide()
    assert answer["failed"] and "passphrase" in answer["msg"]
    assert "Move this file to another folder" in answer["msg"]
    assert key.read_bytes() == before


@pytest.mark.slow
def test_a_given_key_is_installed(provide, tmp_path):
    """The module replaces another key as a whole; an unusable key changes nothing."""
    given, place = tmp_path / "given", tmp_path / "home" / ".ssh" / "id_ed25519"
    subprocess.check_call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(given)])
    text, public = given.read_text(), (tmp_path / "given.pub").read_text().split()
    bare = provide(private=text, check=True)
    assert bare["changed"] and bare["public_key"].split() == public[:2]
    assert not place.parent.exists()
    assert provide(private="still to be made", check=True)["public_key"] == ""
    for before in (None, "another"):
        if before:
            place.write_text(before)
            assert provide(private=text, check=True)["changed"] and place.read_text() == before
        made = provide(private=text)
        assert made["changed"] and made["public_key"].split() == public[:2], made
        assert place.read_text() == text
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        for check in (True, False):
            again = provide(private=text, check=check)
            assert not again["changed"] and again["public_key"] == made["public_key"]
    broken = provide(private="no key\n")
    assert broken["failed"] and "The configured key for" in broken["msg"]
    assert place.read_text() == text
    assert sorted(os.listdir(str(place.parent))) == ["id_ed25519", "id_ed25519.pub"]


def test_a_key_and_a_block_are_one_call(tmp_path):
    """In check mode, the user does not exist yet."""
    blocks = [{"path": ".ssh/config", "block": "a", "marker": "# {mark} of ours"}]
    options = dict(user="nobody-of-that-name", key={"name": "id_ed25519"}, blocks=blocks)
    told = ansible_modules.run("mxcluster_ssh", tmp_path, check=True, **options)
    assert told["changed"] and told["public_key"] == "" and told["user"] == "nobody-of-that-name"
    none = ansible_modules.run("mxcluster_ssh", tmp_path)
    assert none["failed"] and "one of the following is required: key, blocks" in none["msg"]
