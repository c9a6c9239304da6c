"""Tell which job an interrupted ansible-playbook leaves on the nodes, and what happens to this job.

Every playbook that starts or follows a job runs the tasks of the role train_job. So the callback
`mxcluster` calls this module for each of them: train.yml, mpi.yml, profile.yml, verify.yml, and the
children of a sweep, of a restart and of grouping=auto.

The job is noted in a file. The last output of an interrupted child may be lost, so the first
ansible-playbook reads the file and shows the job. A child inherits the path of the file.
"""

import contextlib
import json
import os
from typing import List, Optional

from mxcluster.ansible import attempts
from mxcluster.ansible.edge import TaskResult
from mxcluster.file_io import read_json, replace
from mxcluster.job import job_messages
from mxcluster.model import names
from mxcluster.model.listing import InterruptedJob
from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import flag, real

# This environment variable holds the path of the file.
NOTE = "MXCLUSTER_LEFT_JOB"
PLANNERS = ("mxcluster_plan", "mxcluster_jobs")  # their results may hold the plan of a job
BEGINS = ("start", "prepare", "wait")  # the commands with which a job of a node begins or goes on
# These plugins run after the end of a job, or after the start of a job without a controller.
ENDS = ("mxcluster_report", "mxcluster_verify", "mxcluster_jobs")


class _Options(Record):
    lease: float = field(real(0, 1e100))
    detach: bool = field(flag)


class _Planned(Record):
    """The plan of a job, as far as this module needs it."""

    job: str = field(names.job_id)
    options: _Options = field(record(_Options))


class LeftJob:
    """The job of this ansible-playbook, as long as its processes may run on the nodes.

    Args: `folder` of the temporary files of this ansible-playbook.
    """

    def __init__(self, folder: str) -> None:
        if not attempts.is_child():
            os.environ[NOTE] = os.path.join(folder, "left-job.json")
        self._planned: Optional[InterruptedJob] = None
        self._noted = False

    def learn(self, action: str, result: TaskResult) -> None:
        """Remember the job if `result`, of the plugin `action`, holds the plan of the job."""
        if action in PLANNERS and "packed_plan" in result:
            plan = _Planned.decode(result)
            lease = None if plan.options.detach else plan.options.lease
            self._planned = InterruptedJob(job=plan.job, lease=lease)

    def at_task(self, action: str, command: Optional[str]) -> None:
        """Note the job before it begins on a node, and forget the job after its end.

        Args: `action` of the task that begins now; `command` its argument, None without one.
        """
        if action in ENDS:
            self.forget()
        elif self._planned and not self._noted and action == "mxcluster_node" and command in BEGINS:
            replace(os.environ[NOTE], json.dumps(self._planned.encode()))
            self._noted = True

    def forget(self) -> None:
        """Forget the job: it has ended, or this ansible-playbook has shown its state."""
        self._noted = False
        with contextlib.suppress(OSError):
            os.remove(os.environ[NOTE])

    def lines(self, inventory: str) -> List[str]:
        """Return the lines about the job at the end of the first ansible-playbook, [] without one.

        Args: `inventory` the argument of -i in commands, "" for no -i.
        """
        if attempts.is_child():
            return []
        found = read_json(os.environ[NOTE], InterruptedJob.decode)
        return job_messages.of_interrupted(found, inventory) if found else []
