"""The fixture of the agent's tests."""
import pytest

from mxcluster import processes
from tests.unit.agent.jobs import Job


@pytest.fixture
def job(tmp_path):
    """A Job in a folder of its own, ended when the test is over."""
    made = Job(tmp_path)
    yield made
    if made.folder.status():
        made.remember(made.folder.status())
        made.ask("stop")
    processes.end_groups(made.seen, grace=0)
