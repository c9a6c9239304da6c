"""The command logs: the ends of logs, and the new lines of logs that grow."""

import os
import pathlib

import pytest

from mxcluster.agent import log_files
from tests.machine import Stopwatch

GOES_ON = "until test -e go%d; do sleep 0.02; done"


def go(job, number):
    """Let the worker of GOES_ON go on."""
    open(job.folder.file("go%d" % number), "w").close()


@pytest.mark.slow
def test_new_lines_come_once_and_whole(job):
    job.start("printf 'one\ntw'; %s; printf 'o\nthree'; %s" % (GOES_ON % 1, GOES_ON % 2))
    job.until(lambda: "tw" in job.log("worker-0"))
    first = job.ask("logs", only=["worker-0"], seconds=0.1)
    assert first["logs"] == {"worker-0": ["one"]} and not first["ended"]
    nothing = job.ask("logs", only=["worker-0"], seconds=0.1, offsets=first["offsets"])
    assert nothing["logs"] == {"worker-0": []} and nothing["offsets"] == first["offsets"]
    go(job, 1)
    with Stopwatch() as watch:
        second = job.ask("logs", only=["worker-0"], seconds=60, offsets=nothing["offsets"])
    assert second["logs"] == {"worker-0": ["two"]} and watch.within(30)
    go(job, 2)
    job.end()
    last = job.ask("logs", only=["worker-0"], seconds=60, offsets=second["offsets"])
    assert last["logs"] == {"worker-0": ["three"]} and last["ended"]


def test_without_a_wait_the_last_line_needs_no_end(job):
    job.start("printf 'one\ntwo\nthr'; sleep 300")
    job.until(lambda: "thr" in job.log("worker-0"))
    answer = job.ask("logs", lines=2)
    assert answer["logs"]["worker-0"] == ["two", "thr"] and answer["logs"]["agent"]
    assert answer["ended"]
    assert job.ask("logs", lines=0, only=["worker-0"])["logs"] == {"worker-0": []}


def test_a_log_that_begins_later_is_followed_from_its_first_line(job):
    job.start("sleep 300")
    answer = job.ask("logs", seconds=0.1)
    with open(job.folder.file("server-0.log"), "w") as stream:
        stream.write("line\n" * 30)
    later = job.ask("logs", seconds=60, lines=1, offsets=answer["offsets"])
    assert later["logs"]["server-0"] == ["line"] * 30


def test_a_damaged_status_hides_no_logs(job):
    job.start("echo here")
    job.end()
    path = pathlib.Path(job.folder.file("status.json"))
    known = path.read_text()
    path.write_text("{")
    answer = job.ask("logs", only=["worker-0"])
    path.write_text(known)  # the fixture reads it
    assert answer["logs"] == {"worker-0": ["here"]}


def test_a_link_in_place_of_a_log_has_no_lines(tmp_path):
    """A script of the training user can write to the job folder."""
    (tmp_path / "secret").write_text("secret\n")
    os.symlink(str(tmp_path / "secret"), str(tmp_path / "worker-0.log"))
    os.mkfifo(str(tmp_path / "worker-1.log"))
    for name in ("worker-0.log", "worker-1.log", "missing.log"):
        assert log_files.new_lines(str(tmp_path / name), 0, True) == ([], 0)


@pytest.mark.parametrize("is_final", [True, False])
def test_a_flood_is_cut(tmp_path, monkeypatch, is_final):
    """The end of many bytes is shown, also without any line break."""
    monkeypatch.setattr(log_files, "MOST_NEW", 10)
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"x" * 25)
    lines, offset = log_files.new_lines(str(path), 0, is_final)
    assert (lines, offset) == (["(15 bytes of this log are not shown here)", "x" * 10], 25)
    path.write_bytes(b"a\n")  # another program has emptied the log
    assert log_files.new_lines(str(path), offset, is_final) == (["a"], 2)
