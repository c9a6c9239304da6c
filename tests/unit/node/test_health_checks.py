"""The checks of verify.yml on a node, and the facts about a broken MXNet."""

import hashlib
import os

import pytest

from mxcluster.model.check_answer import Checked, Peers
from mxcluster.model.node_requests import CheckRequest
from mxcluster.node import health_checks

WELL = "__version__ = '1.9.1'\n"
DISTRIBUTED = (
    WELL + "class kvstore:\n    create = staticmethod(lambda name: __import__('time').sleep(300))\n"
)
ALONE = (
    WELL + "class kvstore:\n    def create(name):\n        raise OSError('compile with "
    "USE_DIST_KVSTORE=1')\n"
)
CRASHES = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Return a function that installs a package mxnet before any other."""

    def make(text):
        (tmp_path / "mxnet").mkdir()
        (tmp_path / "mxnet" / "__init__.py").write_text("print('chatter', end='')\n" + text)
        (tmp_path / "mxnet" / "libmxnet.so").write_bytes(b"x" * 3000000)
        package = os.path.dirname(os.path.dirname(os.path.dirname(health_checks.__file__)))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), package)))
        monkeypatch.syspath_prepend(str(tmp_path))
        # No test waits for these timeouts, except where it sets a shorter one.
        monkeypatch.setattr(health_checks, "IMPORT_SECONDS", 120.0)
        monkeypatch.setattr(health_checks, "KVSTORE_SECONDS", 120.0)

    return make


@pytest.mark.slow
def test_facts_of_a_working_mxnet(fake, monkeypatch):
    fake(DISTRIBUTED)
    monkeypatch.setattr(health_checks, "KVSTORE_SECONDS", 0.5)
    facts = health_checks.mxnet()
    assert (facts.mxnet, facts.compiled_in, facts.says) == ("1.9.1", True, "")
    assert facts.libmxnet == hashlib.sha256(b"x" * 3000000).hexdigest()


def test_facts_of_an_mxnet_without_the_distributed_kvstore(fake):
    fake(ALONE)
    facts = health_checks.mxnet()
    assert facts.compiled_in is False and "USE_DIST_KVSTORE" in facts.says


@pytest.mark.slow
@pytest.mark.parametrize(
    "text, says",
    [
        (CRASHES, "cannot import MXNet (killed by signal 11 (SIGSEGV)): no output"),
        (
            "raise OSError('libgfortran.so.3: cannot open shared object file')\n",
            "libgfortran.so.3: cannot open",
        ),
        ("import time\ntime.sleep(300)\n", "cannot import MXNet (the import took longer than 1 s"),
    ],
)
def test_an_mxnet_that_cannot_be_imported_is_an_error(fake, monkeypatch, text, says):
    """A crash of MXNet does not end the check, which still reports the library's digest."""
    fake(text)
    if "sleep" in text:
        monkeypatch.setattr(health_checks, "IMPORT_SECONDS", 1.0)
    facts = health_checks.mxnet()
    assert says in facts.error and len(facts.libmxnet) == 64


def test_check_reports_file_digests_and_free_space(tmp_path):
    (tmp_path / "hosts").write_text("10.0.0.1\n10.0.0.2\n")
    (tmp_path / "groups").write_text("10.0.0.1 10.0.0.9\n")
    request = CheckRequest(etc_dir=str(tmp_path), folders=[str(tmp_path), "/no/such"], peers=[])
    found = health_checks.check(request)
    assert len(found.files.hosts.sha256) == 64
    assert "10.0.0.9" in found.files.groups.error
    assert "No such file" in found.files.data_sharding.error
    assert set(found.room) == {str(tmp_path), "/dev/shm"} and found.ssh == Peers(peers={})
    assert Checked.decode(found.encode()).room == found.room


def test_a_failed_ssh_connection_is_reported_with_its_error(tmp_path, monkeypatch):
    (tmp_path / "ssh").write_text(
        "#!/bin/sh\nfor word; do last=$before before=$word; done\n"
        "[ $last = good ] || { echo Permission denied. >&2; exit 255; }\n"
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
    assert health_checks.ssh(["good", "bad"]) == Peers(
        peers={"good": None, "bad": "Permission denied."}
    )
