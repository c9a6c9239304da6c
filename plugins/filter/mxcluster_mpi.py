"""Filter: find nodes with different MPI engines, by mxcluster.job.plan.mpi_inputs."""

DOCUMENTATION = r"""
name: mxcluster_mpi_engines
short_description: Find nodes with different MPI engines or versions
positional: _input
options:
  _input:
    description: The C(engine) and C(version) of each node, by host.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Fail if the nodes have different MPI engines
  ansible.builtin.assert:
    that: (engines | mxcluster_mpi_engines) == ''
"""

RETURN = r"""
_value:
  description: The message with all hosts and versions, empty if all nodes have the same version.
  type: str
"""

from typing import Any, Callable, Dict

from mxcluster.job.plan.mpi_inputs import different_engines
from mxcluster.job.verdict_text import printable

Json = Dict[str, Any]


def mxcluster_mpi_engines(told: Dict[str, Json]) -> str:
    """Return an error message if the nodes have different MPI engines, else "".

    Args: `told` {host: {"engine", "version"}}.
    """
    return printable(different_engines(told))


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Return {name of a filter: its function}."""
        return {"mxcluster_mpi_engines": mxcluster_mpi_engines}
