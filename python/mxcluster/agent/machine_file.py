"""Write the hardware and the versions of this node into the job folder, for the record of the run.

The controller that has started a job has asked the nodes before. The file serves a controller that
attaches later, and the jobs of a batch system, whose nodes nobody knows before the start.
"""

import contextlib
import json
import platform

from mxcluster.agent.folder import JobFolder
from mxcluster.model.job_knobs import HOST
from mxcluster.model.plan import NodePlan
from mxcluster.model.run_record import MACHINE, NodeOfRun
from mxcluster.node import hardware, software


def write(folder: JobFolder, plan: NodePlan) -> None:
    """Write MACHINE into the folder of a started job. A full disk is no reason to end the job.

    The versions of a job in containers are unknown: they are those of the image.
    """
    found = NodeOfRun(**vars(hardware.look()))
    if plan.options.runtime == HOST:
        versions = software.versions()
        found = found.replaced(python=platform.python_version(), **versions)
    with contextlib.suppress(OSError):
        folder.write_private(MACHINE, json.dumps(found.encode()))
