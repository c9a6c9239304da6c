"""The lines of a log that `make test` repeats for a failed part."""

import pathlib
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parents[3] / "tools" / "evidence.sh"


def evidence(tmp_path, text):
    """Return what the script prints of a log with `text`."""
    log = tmp_path / "part.log"
    log.write_text(text)
    return subprocess.check_output([str(SCRIPT), str(log)]).decode()


@pytest.mark.parametrize(
    "line,named",
    [
        ("FAILED tests/unit/test_a.py::test_b - KeyError: 'x'",) * 2,
        ('  │ fatal: [node1]: FAILED! => {"rc": 1}', 'fatal: [node1]: FAILED! => {"rc": 1}'),
        ("mxcluster: failed: el7",) * 2,
    ],
)
def test_a_line_that_names_a_failure_is_printed(tmp_path, line, named):
    passed = "\n".join("line %d: 1 passed" % number for number in range(100))
    assert evidence(tmp_path, "%s\n%s\n%s\n" % (passed, line, passed)) == named + "\n"


def test_without_such_a_line_the_end_is_printed(tmp_path):
    text = "".join("line %d\n" % number for number in range(100))
    assert evidence(tmp_path, text) == "".join("line %d\n" % number for number in range(75, 100))
