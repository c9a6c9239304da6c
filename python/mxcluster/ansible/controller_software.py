"""Find the versions of the controller's software, for records and reports."""

import platform
from typing import Mapping

from ansible import __version__ as CORE

from mxcluster import __version__
from mxcluster.job import what_ran
from mxcluster.model.node_requests import LookRequest
from mxcluster.model.run_record import Controller


def look(project: str, looks: Mapping[str, LookRequest]) -> Controller:
    """Return the versions of mxcluster, ansible-core and Python.

    Args: `project` the folder of the project; `looks` of a packed plan, which name the package.
    """
    return Controller(
        mxcluster=__version__,
        package=next((one.package or "" for one in looks.values()), ""),
        clone=what_ran.clone(project),
        ansible_core=CORE,
        python=platform.python_version(),
    )
