"""The traceback of a script begins with the script's own line."""

import subprocess
import sys

import pytest

from tests.unit.agent.jobs import PACKAGE

RUN = (
    "import sys; from mxcluster.training import __main__ as main; "
    "sys.exit(main._status_of(main._script, sys.argv[1], []))"
)


@pytest.mark.parametrize(
    "code, lines",
    [
        (
            "def inner():\n    raise ValueError('no such thing')\n\n\ninner()\n",
            ["Traceback (most recent call last):", '  File "SCRIPT", line 5, in <module>'],
        ),
        ("x = 1\nx y\n", ['  File "SCRIPT", line 2', "    x y"]),
    ],
)
def test_a_traceback_begins_with_the_script(tmp_path, code, lines):
    path = tmp_path / "mine.py"
    path.write_text(code)
    ended = subprocess.run(
        [sys.executable, "-c", RUN, str(path)],
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": PACKAGE},
        check=False,
    )
    shown = ended.stderr.decode().splitlines()
    assert ended.returncode == 1
    assert shown[: len(lines)] == [line.replace("SCRIPT", str(path)) for line in lines]
    assert "__main__" not in "".join(shown)


def test_an_error_before_the_script_keeps_its_whole_traceback(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "missing.py")],
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": PACKAGE},
        check=False,
    )
    assert ended.returncode == 1 and "in _script" in ended.stderr.decode()
