"""What a node answers when it is asked, and what it says of an MXNet that does not work."""
import hashlib
import os

import pytest

from mxcluster import checks

WELL = "__version__ = '1.9.1'\n"
DISTRIBUTED = WELL + "class kvstore:\n    create = staticmethod(lambda name: __import__('time').sleep(60))\n"
ALONE = WELL + "class kvstore:\n    def create(name):\n        raise OSError('compile with USE_DIST_KVSTORE=1')\n"
CRASHES = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Makes a package mxnet that is found before any other."""
    def make(text):
        (tmp_path / "mxnet").mkdir()
        (tmp_path / "mxnet" / "__init__.py").write_text("print('chatter', end='')\n" + text)
        (tmp_path / "mxnet" / "libmxnet.so").write_bytes(b"x" * 3000000)
        package = os.path.dirname(os.path.dirname(checks.__file__))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), package)))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(checks, "KVSTORE_SECONDS", 0.5)
    return make


def test_an_mxnet_that_is_well(fake):
    fake(DISTRIBUTED)
    facts = checks.mxnet({})
    assert (facts["mxnet"], facts["compiled_in"], facts["says"]) == ("1.9.1", True, "")
    assert facts["libmxnet"] == hashlib.sha256(b"x" * 3000000).hexdigest()


def test_an_mxnet_without_the_distributed_kvstore(fake):
    fake(ALONE)
    facts = checks.mxnet({})
    assert facts["compiled_in"] is False and "USE_DIST_KVSTORE" in facts["says"]


@pytest.mark.parametrize("text, says", [
    (CRASHES, "MXNet cannot be imported: killed by signal 11 (SIGSEGV): no word"),
    ("raise OSError('libgfortran.so.3: cannot open shared object file')\n", "libgfortran.so.3: cannot open"),
    ("import time\ntime.sleep(60)\n", "MXNet cannot be imported: killed by signal 9")])
def test_an_mxnet_that_cannot_be_imported(fake, monkeypatch, text, says):
    """Its crash is not the check's; its library's digest is told all the same."""
    fake(text)
    monkeypatch.setattr(checks, "IMPORT_SECONDS", 1.0)
    facts = checks.mxnet({})
    assert says in facts["error"] and "compiled_in" not in facts and len(facts["libmxnet"]) == 64


def test_files_and_room(tmp_path):
    (tmp_path / "hosts").write_text("10.0.0.1\n10.0.0.2\n")
    (tmp_path / "groups").write_text("10.0.0.1 10.0.0.9\n")
    answers = checks.check({"etc_dir": str(tmp_path), "folders": [str(tmp_path), "/no/such"], "peers": []})
    assert len(answers["files"]["hosts"]["sha256"]) == 64
    assert "10.0.0.9" in answers["files"]["groups"]["error"] and "No such file" in answers["files"]["data_sharding"]["error"]
    assert set(answers["room"]) == {str(tmp_path), "/dev/shm"} and answers["ssh"] == {"peers": {}}
    assert set(answers) == set(checks.CHECKS)


def test_ssh_that_does_not_work_says_why(tmp_path, monkeypatch):
    (tmp_path / "ssh").write_text("#!/bin/sh\nfor word; do last=$before before=$word; done\n"
                                  "[ $last = good ] || { echo Permission denied. >&2; exit 255; }\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
    assert checks.ssh({"peers": ["good", "bad"]}) == {"peers": {"good": None, "bad": "Permission denied."}}
