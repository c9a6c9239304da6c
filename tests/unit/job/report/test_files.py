"""Damaged files of a run folder."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.job.report import files
from tests.unit.job.plan.test_submission import submitted
from tests.unit.job.report import fake_run

GARBAGE = ("", "{", "null", "[]", "3", "[" * 100000)


def test_sound_files_are_read_as_they_are(tmp_path):
    plan = fake_run.make_plan()
    files.write_json(str(tmp_path / "plan.json"), plan.encode())
    assert files.read_plan(str(tmp_path)) == plan
    files.write_json(str(tmp_path / "plan.json"), submitted()[0].encode())
    assert files.read_plan(str(tmp_path)).batch, "a job that has never had nodes"
    assert files.read_verdict(str(tmp_path)) is None
    files.write_json(str(tmp_path / "verdict.json"), fake_run.verdict().encode())
    assert files.read_verdict(str(tmp_path)) == fake_run.verdict()


@pytest.mark.parametrize("content", GARBAGE + ("{}", '{"nodes": {}}'))
def test_a_damaged_plan_is_named(tmp_path, content):
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(BadInput, match="/plan.json is damaged .*: restore or remove this file"):
        files.read_plan(str(tmp_path))


@pytest.mark.parametrize("content", GARBAGE + ("{}",))
def test_a_damaged_verdict_is_named(tmp_path, content):
    (tmp_path / "verdict.json").write_text(content)
    with pytest.raises(BadInput, match="/verdict.json is damaged .*train.yml -e attach"):
        files.read_verdict(str(tmp_path))


def test_the_last_frame_of_a_progress_bar_stays(tmp_path):
    log = tmp_path / "worker-0.log"
    log.write_bytes(b"begin\r\n 0%| |\r 50%|# |\r100%|##|\nend\r\n")
    assert files.tail(str(log)) == ["begin", "100%|##|", "end"]
