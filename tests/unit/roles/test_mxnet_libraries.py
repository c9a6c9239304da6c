"""The role mxnet names the libraries that libmxnet.so needs and the linker does not find."""

import subprocess
import sys

import pytest
import yaml

from tests.templates import templated
from tests.unit.roles.test_cuda_decisions import ROLES, decided


@pytest.fixture
def ldd(tmp_path):
    """Return a function that runs the command of the role for an MXNet that needs cuBLAS."""
    (tmp_path / "mxnet").mkdir()
    # The command must not import MXNet: from 1.4.1 on, an import needs the driver.
    (tmp_path / "mxnet" / "__init__.py").write_text("raise OSError('imported')\n")
    (tmp_path / "cuda").mkdir()
    cublas = tmp_path / "cuda" / "libcublas.so.9.2"
    for target, *more in (
        (cublas, "-Wl,-soname," + cublas.name),
        (tmp_path / "mxnet" / "libmxnet.so", "-Wl,--no-as-needed", str(cublas)),
    ):
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-x", "none", "-o", target, *more],
            check=True,
        )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(
        '#!/bin/sh\nPYTHONPATH=%s exec %s -S "$@"\n' % (tmp_path, sys.executable)
    )
    (tmp_path / "bin" / "python").chmod(0o755)
    (task,) = [
        one["ansible.builtin.command"]
        for one in yaml.safe_load((ROLES / "mxnet/tasks/libraries.yml").read_text())
        if "ansible.builtin.command" in one
    ]
    known = yaml.safe_load((ROLES / "mxnet/vars/main.yml").read_text())
    known["mxcluster_env_dir"] = str(tmp_path)

    def run(**environment):
        done = subprocess.run(
            templated(task["argv"], known),
            env=dict({"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, **environment),
            stdout=subprocess.PIPE,
            check=True,
        )
        return decided(
            "mxnet", "__mxnet_unresolved", __mxnet_linked={"stdout": done.stdout.decode()}
        )

    return run


def test_a_library_that_the_linker_lacks_is_named(ldd, tmp_path):
    assert ldd() == ["libcublas.so.9.2"]
    assert ldd(LD_LIBRARY_PATH=str(tmp_path / "cuda")) == []
