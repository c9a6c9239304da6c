"""The history of runs: the table of runs.yml, and runs/index.html."""

import json
import shutil

import pytest

from mxcluster.errors import BadInput
from mxcluster.job.report import history
from mxcluster.model.run_record import Controller, RunRecord
from mxcluster.model.run_summary import RunSummary
from tests.unit.job.report import fake_run


def write_run(runs, job, **fields):
    known = {"kv": "dist_sync", "what": "mlp on digits", "seconds": 61.0, "state": "OK"}
    (runs / job).mkdir(parents=True)
    text = json.dumps(RunSummary(**dict(known, job=job, **fields)).encode())
    (runs / job / "summary.json").write_text(text)


@pytest.fixture
def good_run(good_run, tmp_path):
    """Return a copy of the run in a copy of its folder of runs: the tests change it."""
    shutil.copytree(str(good_run.parent), str(tmp_path / "kept"))
    return tmp_path / "kept" / good_run.name


@pytest.mark.slow
def test_a_run_has_a_row(good_run):
    (row,) = history.read(str(good_run.parent))
    assert row == history.of_run(str(good_run))
    assert (row.state, row.kv, row.what) == ("OK", "dist_gsync", "mlp on digits")
    assert row.accuracy == 0.9722 and fake_run.BEGIN < row.started < fake_run.BEGIN + 5
    table = "\n".join(history.table([row], 20))
    for words in ("dist_gsync", "0.9722", "mlp on digits", "OK"):
        assert words in table, table
    assert (good_run.parent / "index.html").exists()


def test_a_run_of_an_earlier_version_gets_a_row(good_run):
    (good_run / "summary.json").unlink()
    row = history.of_run(str(good_run))
    assert row.started == fake_run.BEGIN and (good_run / "summary.json").exists()


def test_given_knobs_note_and_tag_are_in_the_row():
    plan = fake_run.make_plan()
    options = plan.options.replaced(lr=0.5, tag="paper", note="with more lr", batch_size=32)
    row = history.summary(plan.replaced(options=options), fake_run.verdict(), 1.0)
    assert row.knobs["lr"] == "0.5" and "batch_size" not in row.knobs
    assert (row.tag, row.note) == ("paper", "with more lr")


def test_the_knobs_of_the_record_are_in_the_row(good_run):
    record = RunRecord(
        job=good_run.name,
        command=["ansible-playbook"],
        inventory=[],
        controller=Controller(mxcluster="1", package="", ansible_core="2", python="3"),
        nodes={},
        given={"lr": "0.05", "kv": "dist_gsync", "server_classes": "x" * 300, "after": ""},
        of_inventory=["server_classes"],
        resolved=fake_run.make_plan().options,
        begun="2026-11-27T09:30:00+01:00",
    )
    (good_run / "run.json").write_text(json.dumps(record.encode()))
    (good_run / "summary.json").unlink()
    row = history.of_run(str(good_run))
    assert row.knobs == {"lr": "0.05", "server_classes": "x" * 200}, "a given default counts"
    assert history.cells(row)[9] == "lr=0.05 (inventory: server_classes=%s)" % ("x" * 200)
    (good_run / "run.json").write_text("{")
    (good_run / "summary.json").unlink()
    assert "lr" not in history.of_run(str(good_run)).knobs
    (good_run / "run.json").unlink()  # other tests have the same run


def test_an_ended_run_gets_a_tag_and_a_note_that_stay(good_run):
    runs, job = str(good_run.parent), good_run.name
    assert history.annotate(runs, job, "paper", None, check=True)
    assert history.of_run(str(good_run)).tag == "", "check mode writes nothing"
    assert history.annotate(runs, job, "paper", None)
    assert history.annotate(runs, job, None, "the best one")
    assert not history.annotate(runs, job, "paper", "the best one"), "a second time"
    plan, verdict = fake_run.make_plan(), fake_run.verdict()
    history.add(str(good_run), plan, verdict, [])
    (row,) = history.read(runs)
    assert (row.tag, row.note) == ("paper", "the best one")
    history.annotate(runs, job, "", None)
    assert history.of_run(str(good_run)).tag == ""
    for wrong in ("no-job", "../x", job[:-1]):
        with pytest.raises(BadInput, match="has no ended run with this id") as refusal:
            history.annotate(runs, wrong, "a", None)
    assert "did you mean '%s'" % job in str(refusal.value)


def test_each_word_of_the_filter_is_in_a_column(tmp_path):
    write_run(tmp_path, "one", tag="paper", started=5.0)
    write_run(tmp_path, "two", tag="paper", state="FAILED", started=9.0, accuracy=0.9, seconds=9)
    write_run(tmp_path, "three", note="Paper?", started=7.0)
    (tmp_path / "no-run").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "summary.json").write_text("{")
    rows = history.read(str(tmp_path))
    assert [row.job for row in rows] == ["two", "three", "one"], "the newest first"
    for words, jobs in (
        ("", ["two", "three", "one"]),
        ("paper", ["two", "three", "one"]),
        ("PAPER failed", ["two"]),
        ("paper nothing", []),
        ("accuracy>0.85", ["two"]),
        ("accuracy<0.9", []),
        ("time>60 paper", ["three", "one"]),
        ("samples/s>0", []),
        ("accuracy>many", []),
    ):
        assert [row.job for row in history.matching(rows, words)] == jobs, words
    assert history.table(rows, 2)[-1] == "and 1 run more: give lines="
    assert history.table([], 2) == ["no runs"]


def test_a_page_of_somebody_else_stays(tmp_path):
    write_run(tmp_path, "one")
    (tmp_path / "index.html").write_text("<h1>my page</h1>")
    history.write_page(str(tmp_path))
    assert (tmp_path / "index.html").read_text() == "<h1>my page</h1>"


def test_a_text_cannot_end_the_script_of_the_page(tmp_path):
    write_run(tmp_path, "one", note="</script><script>alert(1)</script>")
    with open(history.write_page(str(tmp_path))) as stream:
        assert "<script>alert" not in stream.read()
