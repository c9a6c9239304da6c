"""Running another program to its end."""

import pytest

from mxcluster import calls


def test_the_end_of_a_program_has_its_status_and_output(tmp_path):
    script = "cat; pwd; echo one >&2; echo $X >&2; exit 3"
    ended = calls.run(["/bin/sh", "-c", script], 60, {"X": "two"}, "in\n", str(tmp_path))
    assert ended == (3, "in\n%s\n" % tmp_path, "one\ntwo\n") and ended.last_line == "two"
    assert calls.run(["sh", "-c", "kill -9 $$"], 60) == (-9, "", "")


def test_a_program_that_cannot_be_run_gives_the_reason():
    ended = calls.run(["no-such-program"], 60)
    assert ended.status == calls.MISSING and "No such file" in ended.last_line


@pytest.mark.slow
def test_a_late_program_is_killed_and_keeps_its_output():
    ended = calls.run(["sh", "-c", "echo begun; exec sleep 300"], 5)
    assert ended == (calls.LATE, "begun\n", "no answer within 5 s")
