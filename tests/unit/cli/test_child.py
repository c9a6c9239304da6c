"""The exit status of `mxcluster launch` is that of the process that failed first."""

import pytest

from mxcluster import cli
from mxcluster.cli import child
from tests.unit.job.report import fake_run


def failed(exit_code):
    return fake_run.verdict(fake_run.failure(exit_code=exit_code))


@pytest.mark.parametrize(
    "code, verdict, status",
    [
        (0, fake_run.verdict(), 0),
        (0, None, 0),  # such as detach
        (2, None, 2),  # refused before a job began
        (2, failed(3), 3),
        (2, failed(-9), 137),
        (2, failed(None), 1),
        (2, failed(0), 1),  # ended before it was done
        (130, failed(None), 130),
    ],
)
def test_the_exit_status(code, verdict, status):
    assert child.status_of(code, verdict) == status


def test_a_wrong_line_starts_nothing(monkeypatch, capsys):
    monkeypatch.setattr(child, "run", lambda *_: pytest.fail("train.yml was started"))
    assert cli.main(["launch", "-n", "2", "--launcher", "mesos", "python", "x.py"]) == 2
    assert "mxcluster launch: --launcher mesos" in capsys.readouterr().err
    assert cli.main(["run"]) == 2 and "usage: mxcluster launch" in capsys.readouterr().err
