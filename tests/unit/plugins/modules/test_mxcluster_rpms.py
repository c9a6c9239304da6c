"""mxcluster_rpms under the Pythons of nodes, with a program that answers as rpm does."""
import os
import sys

import pytest

from tests import ansible_modules
from tests.training.environments import find_python

PYTHONS = {"2.7": find_python("2.7"), "3.6": find_python("3.6"), "controller": sys.executable}
RPM = """#!/bin/sh
case "$1 $4" in
  "-q cuda-toolkit-9-2") printf '9.2.148\\n' ;;
  "-q cuda-cublas-9-2") printf '9.2.148\\n' ;;
  "-q "*) echo "package is not installed"; exit 1 ;;
  "-K "*) echo "$2: %s"; exit %d ;;
  "-qpl "*) printf '/etc/yum.repos.d/cuda.repo\\n/var/cuda-repo-9-2-local/a.rpm\\n/var/cuda-repo-9-2-local/x/b.rpm\\n' ;;
esac
"""


@pytest.fixture(params=sorted(PYTHONS))
def rpms(request, tmp_path, monkeypatch):
    """Runs the module; `says` and `code` are what rpm -K answers."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    (tmp_path / "bin").mkdir()

    def run(says="rsa sha1 (md5) pgp md5 OK", code=0, **options):
        (tmp_path / "bin" / "rpm").write_text(RPM % (says, code))
        (tmp_path / "bin" / "rpm").chmod(0o755)
        return ansible_modules.run("mxcluster_rpms", tmp_path, under=PYTHONS[request.param], **options)
    return run


def test_what_is_missing(rpms):
    asked = {"cuda-toolkit-9-2": "", "cuda-cublas-9-2": "9.2.148.1", "cuda-cublas-dev-9-2": "9.2.148.1"}
    answer = rpms(packages=asked)
    assert answer["lacking"] == ["cuda-cublas-9-2-9.2.148.1", "cuda-cublas-dev-9-2-9.2.148.1"] and not answer["changed"]
    assert rpms(packages={"cuda-cublas-9-2": "9.2.148"})["lacking"] == []


@pytest.mark.parametrize("says", ["rsa sha1 (md5) pgp md5 OK", "digests signatures OK"])
def test_a_signed_one(rpms, says):
    answer = rpms(says, files=[{"path": "/tmp/a.rpm", "trusted": False}])
    assert answer["folders"] == ["/var/cuda-repo-9-2-local"]


@pytest.mark.parametrize("says, code", [
    ("sha1 md5 OK", 0), ("digests OK", 0),  # not signed at all
    ("RSA sha1 ((MD5) PGP) md5 NOT OK (MISSING KEYS: (MD5) PGP#7fa2af80)", 1), ("digests SIGNATURES NOT OK", 1),
    ("DIGESTS signatures NOT OK", 1)])
def test_one_that_nobody_vouches_for(rpms, says, code):
    answer = rpms(says, code, files=[{"path": "/tmp/a.rpm", "trusted": False}])
    assert answer["failed"] and "not what NVIDIA has signed" in answer["msg"] and says in answer["msg"]
    assert "folders" in rpms(says, code, files=[{"path": "/tmp/a.rpm", "trusted": True}])  # its sha256 was checked
