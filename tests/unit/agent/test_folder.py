"""Reading and writing the files of a job's folder."""

import json
import os
import subprocess

import pytest

from mxcluster.agent.folder import EVENTS_TAIL, JobFolder
from mxcluster.agent.log_files import readable
from mxcluster.errors import BadInput
from mxcluster.model.events import MOST_METRICS
from mxcluster.model.status import Process, Status
from tests.plans import part_json, part_of, process_of
from tests.unit.agent.jobs import files

NAMES = {("worker", 0): "worker-0", ("worker", 1): "worker-1"}


def test_log_bytes_become_readable_lines():
    data = (
        b"\x7fELF\x00\x01\xff\xfe\nfirst\r\n\n \t \nloss\r10%\r20%\x1b[0m\nna\xc3\xafve \xff "
        b"caf\xc3\n" + b"x" * 600
    )
    assert readable(data) == [
        "ELF",
        "first",
        "20%[0m",
        "na\u00efve  caf",
        "x" * 497 + "...",
    ]
    assert readable(b"\n".join(b"%d" % number for number in range(50))) == [
        str(number) for number in range(30, 50)
    ]
    assert readable(b"") == []


def test_only_the_end_of_a_long_log_is_read(tmp_path):
    (tmp_path / "worker-0.log").write_bytes(b"early\n" + b"\0" * 1000000 + b"\nlast words\n")
    assert JobFolder(str(tmp_path)).log_lines("worker-0") == ["last words"]
    assert JobFolder(str(tmp_path)).log_lines("worker-1") == []


def test_of_a_progress_bar_the_last_frame_stays():
    bar = b"".join(b"\r%3d%%" % percent for percent in range(101))
    assert readable(b"begin\n" + bar + b"\n" + bar + b"\r   \nend\r\n") == [
        "begin",
        "100%",
        "100%",
        "end",
    ]


def event(kind, role="worker", index=0, **fields):
    return json.dumps(dict(fields, event=kind, time=1.0, role=role, index=index)) + "\n"


def test_an_event_of_lines_keeps_earlier_figures_and_gives_way_to_the_scripts_own(tmp_path):
    (tmp_path / "events.jsonl").write_text(
        event("batch", source="lines", epoch=0, loss=2.5)
        + event("batch", source="lines", epoch=0, samples_per_s=100.0)
        + event("batch", index=1, loss=1.5)
        + event("batch", index=1, source="lines", loss=9.5, samples_per_s=100.0)
    )
    progress = JobFolder(str(tmp_path)).progress(NAMES)
    assert progress["worker-0"].batch.loss == 2.5
    assert progress["worker-0"].batch.samples_per_s == 100.0
    assert (progress["worker-1"].batch.loss, progress["worker-1"].batch.samples_per_s) == (
        1.5,
        None,
    )


def test_progress_is_the_last_event_of_each_kind(tmp_path):
    (tmp_path / "events.jsonl").write_text(
        event("start", epochs=2)
        + event("batch", step=1)
        + event("batch", step=2)
        + event("epoch", epoch=0)
        + event("batch", index=1, step=7)
        + event("gsync", role="server", group=0)
        + event("note", text="hm")
        + "no json\n[]\n"
        + event("batch", index=9, step=1)
        + '{"event": "batch", "role": "wor'
    )
    progress = JobFolder(str(tmp_path)).progress(NAMES)
    assert {name: sorted(latest.encode()) for name, latest in progress.items()} == {
        "worker-0": ["batch", "epoch", "start"],
        "worker-1": ["batch"],
    }
    assert progress["worker-0"].batch.step == 2


def test_progress_has_the_latest_event_of_each_metric(tmp_path):
    named = [("bleu", 1.0), ("lr", 0.5), ("bleu", 2.0), (None, 3.0), ("bleu", None)]
    named += [("m%d" % number, 1.0) for number in range(100)]
    (tmp_path / "events.jsonl").write_text(
        "".join(event("metric", name=name, value=value) for name, value in named)
    )
    found = JobFolder(str(tmp_path)).progress(NAMES)["worker-0"]
    figures = [(metric.name, metric.value) for metric in found.metrics]
    assert figures[:2] == [("bleu", 2.0), ("lr", 0.5)] and len(figures) == MOST_METRICS


DEEP = "[" * 100000


def test_progress_skips_damaged_and_hostile_lines(tmp_path):
    (tmp_path / "events.jsonl").write_text(
        event("batch", step=1)
        + DEEP
        + "\n"
        + event("batch", role=[], step=2)
        + event("batch", index={}, step=3)
        + '{"event": [], "time": 1, "role": "worker", "index": 0}\n'
        + '{"event": "batch", "time": 1, "role": "worker", "index": 1e999}\n'
    )
    progress = JobFolder(str(tmp_path)).progress(NAMES)
    assert {name: latest.batch.step for name, latest in progress.items()} == {"worker-0": 1}


@pytest.mark.parametrize("text", [DEEP, "[]", "3", "\0", "\udcff"])
def test_a_damaged_status_is_refused(tmp_path, text):
    (tmp_path / "status.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput, match="status.json is damaged .*another program has changed"):
        JobFolder(str(tmp_path)).status()


def test_a_deep_plan_is_not_the_plan_of_a_new_job(tmp_path):
    (tmp_path / "plan.json").write_text(DEEP)
    (tmp_path / "token").write_text("t")
    assert not JobFolder(str(tmp_path)).has(files(part_of(), token="t"))


def test_progress_of_a_long_run_keeps_the_start_event(tmp_path):
    with open(str(tmp_path / "events.jsonl"), "w") as stream:
        stream.write(event("start", epochs=2))
        for step in range(1, 2 * EVENTS_TAIL // 40):
            stream.write(event("batch", step=step))
        size = stream.tell()
    assert size > 2 * EVENTS_TAIL
    progress = JobFolder(str(tmp_path)).progress(NAMES)["worker-0"]
    assert (progress.start.epochs, progress.batch.step) == (2, step)


def test_a_private_file_is_private_before_anything_is_written(tmp_path, monkeypatch):
    """Another user who opens a file in the moment before its mode is set reads all that follows."""
    modes, chmod = [], os.fchmod

    def record(descriptor, mode):
        modes.append(os.fstat(descriptor).st_mode & 0o777)
        chmod(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", record)
    old = tmp_path / "old"
    old.write_text("public")
    old.chmod(0o644)
    umask = os.umask(0)
    try:
        JobFolder(str(tmp_path)).write_private("new", "secret")
        JobFolder(str(tmp_path)).write_private("old", "secret")
    finally:
        os.umask(umask)
    assert modes == [0o600, 0o644]
    for name in ("new", "old"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_a_shell_can_read_the_environment_file(tmp_path):
    folder = JobFolder(str(tmp_path))
    values = {"PLAIN": "1", "QUOTES": 'it\'s "so" $HOME\nand more', "EMPTY": ""}
    folder.write_env(process_of(command=["python", "-c", "print(1)\nprint(2)"]), values)
    assert os.stat(folder.file("worker-0.env")).st_mode & 0o777 == 0o600
    text = '. ./worker-0.env; printf \'%s|%s|%s\' "$PLAIN" "$QUOTES" "$EMPTY"'
    shown = subprocess.check_output(["sh", "-c", text], cwd=folder.path, env={})
    assert shown.decode() == "|".join(values[name] for name in ("PLAIN", "QUOTES", "EMPTY"))


@pytest.mark.parametrize(
    "text, words",
    [
        (None, "is missing"),
        ("{", "is not valid JSON"),
        ("{}", "is not an object with job, kv, options, nodes, processes, host"),
        (
            json.dumps(dict(part_json(), processes=[{"name": "worker-0", "role": "worker"}])),
            "processes[0]=['name', 'role'] is not an object with host, address",
        ),
        (json.dumps(part_json()), "it has no process"),
    ],
)
def test_an_unusable_plan_is_refused(tmp_path, text, words):
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    with pytest.raises(BadInput) as refusal:
        JobFolder(str(tmp_path)).plan()
    assert str(tmp_path / "plan.json") in str(refusal.value) and words in str(refusal.value)


def test_a_reader_of_a_plan_sees_a_whole_plan(tmp_path):
    """A reader that has opened the file before keeps the old content."""
    folder = JobFolder(str(tmp_path))
    (tmp_path / "plan.json").write_text('{"job": "old"}')
    with (tmp_path / "plan.json").open() as reader:
        folder.prepare(files(part_of(job="new"), token="t"))
        assert json.loads(reader.read()) == {"job": "old"}
    assert json.loads((tmp_path / "plan.json").read_text())["job"] == "new"
    assert sorted(os.listdir(str(tmp_path))) == ["plan.json", "token"]


def test_writing_a_status_leaves_no_other_file(tmp_path):
    folder = JobFolder(str(tmp_path))
    assert folder.status() is None
    me = Process(pid=1, start_time=1)
    first = Status(job="j", agent=me, started=1.0, processes=[])
    folder.write_status(first)
    folder.write_status(first.ended_by("done", 2.0))
    assert folder.status() == first.ended_by("done", 2.0)
    assert os.listdir(folder.path) == ["status.json"]
