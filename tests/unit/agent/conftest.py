"""The fixture of the agent's tests."""

import os

import pytest

from mxcluster.node import processes
from tests.unit.agent.jobs import Job


@pytest.fixture
def job(tmp_path):
    """Yield a Job in its own folder and end it after the test.

    The folder of the job folders belongs to this test, too: the start of a job locks that folder,
    and removes files of other jobs there whose agents were killed.
    """
    made = Job(tmp_path / "jobs" / "job-1")
    os.makedirs(made.path)
    yield made
    if made.status():
        made.remember(made.status())
        made.ask("stop")
    processes.end_groups(made.seen, grace=0)
