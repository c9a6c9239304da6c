"""Do work once in ansible-playbook that each of its forks would repeat.

ansible-playbook forks for each task and host. A fork has what ansible-playbook has loaded before.
"""

import contextlib
import gc
import os
import sys
from typing import Collection, Optional

from ansible.plugins.loader import filter_loader, test_loader

from mxcluster.job.report import style
from mxcluster.model.answers import JobState


def prepare() -> None:
    """Load all filters and tests, and exclude all present objects from garbage collection.

    Each fork would load the plugins anew, which took a quarter of the time of a job's
    ansible-playbook. A garbage collection in a fork would copy the memory of all these objects.
    """
    for loader in (filter_loader, test_loader):
        list(loader.all())
    gc.freeze()


def load_report_libraries(answers: Collection[Optional[JobState]], state_dir: str) -> None:
    """Import the libraries of the job's report, as soon as a worker trains.

    Then the machine waits for the job. All hosts of the task must have answered: after that
    ansible-playbook forks no process until the task ends. A report without these libraries imports
    them itself, and names a missing one.

    Args: `answers` of the hosts, None for a host without an answer; `state_dir` the state folder of
    the inventory, "" if not known.
    """
    if not state_dir or "matplotlib" in sys.modules or not all(answers):
        return
    if any(latest.trains for state in answers if state for latest in state.progress.values()):
        with contextlib.suppress(ImportError, OSError):
            style.load(os.path.join(state_dir, "matplotlib"))
