"""Filter: extract the part of Ansible's inventory that the plan needs."""

DOCUMENTATION = r"""
name: mxcluster_inventory
short_description: Extract the part of an inventory that mxcluster reads
description:
  - Returns the groups V(scheduler), V(servers) and V(workers) and, for their hosts and for the
    hosts of the group V(batch_nodes), only the variables that mxcluster reads. The result has no
    facts of hosts, so C(--limit) does not affect it.
  - Fails for a host variable whose template uses an undefined variable.
positional: _input, groups
options:
  _input:
    description: The variable C(hostvars).
    type: dict
    required: true
  groups:
    description: The variable C(groups).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the part of the inventory that mxcluster reads
  ansible.builtin.debug:
    msg: "{{ hostvars | mxcluster_inventory(groups) }}"
"""

RETURN = r"""
_value:
  description: C(groups), lists of hosts by group, and C(hosts), dicts of variables by host.
  type: dict
"""

import re
from typing import Any, Callable, Dict, List, Mapping, Sequence

from ansible.errors import AnsibleFilterError
from jinja2.runtime import Undefined

Json = Dict[str, Any]

GROUPS = ("scheduler", "servers", "workers")
# The group of hosts that Slurm or Grid Engine may choose. No playbook contacts these hosts, but
# their host variables count.
BATCH_NODES = "batch_nodes"
VARIABLES = (
    "ansible_connection",
    "ansible_host",
    "node_address",
    "cluster_network",
    "dmlc_interface",
    "worker_group",
    "worker_share",
    "worker_batch_max",
    "slowdown",
    "workers_per_host",
    "servers_per_host",
    "gpus",
    "gpu_speeds",
    "mxcluster_user",
)


def mxcluster_inventory(
    hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Sequence[str]]
) -> Json:
    """Return {"groups": {group: [host]}, "hosts": {host: {variable: value}}} for a plan.

    Args: `hostvars` and `groups` Ansible's variables of these names.

    Raises AnsibleFilterError with all host variables whose templates use an undefined variable.
    """
    members = {group: list(groups.get(group, [])) for group in GROUPS}
    hosts: Dict[str, Json] = {}
    problems: Dict[str, List[str]] = {}
    for host in sorted(set(sum(members.values(), [])).union(groups.get(BATCH_NODES, []))):
        known = hostvars[host]
        hosts[host] = {name: known[name] for name in VARIABLES if name in known}
        for name, value in hosts[host].items():
            if is_undefined(value):
                problems.setdefault(name, []).append(host)
    if problems:
        raise AnsibleFilterError(
            "\n".join(
                "%s of %s is refused, because its template uses an undefined variable (%s): define "
                "this variable, correct the template, or remove %s"
                % (name, ", ".join(wrong), hosts[wrong[0]][name], name)
                for name, wrong in problems.items()
            )
        )
    return {"groups": members, "hosts": hosts}


def is_undefined(value: Any) -> bool:
    """Return True for the value of a host variable whose template uses an undefined variable.

    Old versions of Ansible leave the text of such a template in `hostvars`.
    """
    return isinstance(value, Undefined) or (
        isinstance(value, str) and bool(re.search(r"\{[{%]", value))
    )


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Return {name of a filter: its function}."""
        return {"mxcluster_inventory": mxcluster_inventory}
