"""Define the inventory of a job: groups of hosts, host variables, and Ansible's forks."""

from typing import Dict, List, Mapping, Sequence

from mxcluster.model.host_variables import Given
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import each, optional, passing, table, text, whole

MOST = 100000  # hosts
_hosts = optional(each(text, MOST))
# `HostVariables` checks the values, with the host and the variable in the message.
_variables = optional(passing(dict, lambda value: True, "an object"))


def _members(value: object) -> List[str]:
    return _hosts(value) or []


def _given(value: object) -> Given:
    found: Dict[str, Mapping[str, object]] = {}
    for host, own in table(text, _variables, MOST)(value).items():
        found[host] = own or {}
    return found


class Inventory(Record):
    """The hosts of an inventory."""

    groups: Mapping[str, List[str]] = field(table(text, _members, MOST))
    """{scheduler, servers or workers: hosts}."""
    hosts: Given = field(_given)
    """{host: {host variable: value}}."""
    forks: int = field(whole(0, 10**6), default=0)
    """The number of nodes on which Ansible runs a task at once."""
    lost: Sequence[str] = field(each(text, MOST), default=[])
    """The hosts that an elastic job leaves out, because they do not answer."""
