"""A process imports the packages of its script after those of the environment."""

import os
import subprocess
import sys

from tests.unit.agent.jobs import PACKAGE

RUN = (
    "import sys, sysconfig; from mxcluster.training import __main__ as main; "
    "before = list(sys.path); main.add_layer(); print(sorted(set(sys.path) - set(before))); "
    "print(sys.path.index(sysconfig.get_path('purelib')) < sys.path.index(sys.argv[1])); "
    "import yaml, mine_only; print(yaml.__file__, mine_only.__file__)"
)


def test_a_layer_adds_packages_and_replaces_none(tmp_path):
    for name in ("yaml", "mine_only"):
        (tmp_path / (name + ".py")).write_text("")
    told = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        stdout=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=PACKAGE, MXCLUSTER_LAYER=str(tmp_path)),
        check=True,
    ).stdout.decode()
    added, is_last, found = told.splitlines()
    assert added == str([str(tmp_path)]) and is_last == "True"
    other, own = found.split()
    assert own == str(tmp_path / "mine_only.py") and not other.startswith(str(tmp_path))
