"""The fixture of the agent's tests."""

import pytest

from mxcluster.node import processes
from tests.unit.agent.jobs import Job


@pytest.fixture
def job(tmp_path):
    """Yield a Job in its own folder and end it after the test."""
    made = Job(tmp_path)
    yield made
    if made.folder.status():
        made.remember(made.folder.status())
        made.ask("stop")
    processes.end_groups(made.seen, grace=0)
