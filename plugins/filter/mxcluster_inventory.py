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

from ansible.errors import AnsibleFilterError, AnsibleUndefinedVariable
from jinja2.exceptions import UndefinedError
from jinja2.runtime import Undefined

from mxcluster.model.host_variables import PLAN, read_by

Json = Dict[str, Any]

GROUPS = ("scheduler", "servers", "workers")
# The group of hosts that Slurm or Grid Engine may choose. No playbook contacts these hosts, but
# their host variables count.
BATCH_NODES = "batch_nodes"


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
        hosts[host], known = {}, hostvars[host]
        for name in read_by(PLAN):
            try:
                if name in known:
                    hosts[host][name] = defined(known[name])
            except (AnsibleUndefinedVariable, UndefinedError) as error:
                problems.setdefault("%s: %s" % (name, error), []).append(host)
    if problems:
        raise AnsibleFilterError(
            "\n".join(
                "%s of %s is refused, because its template uses an undefined variable (%s): define "
                "this variable, correct the template, or remove %s"
                % (name, ", ".join(wrong), error, name)
                for (name, _, error), wrong in (
                    (problem.partition(": "), wrong) for problem, wrong in problems.items()
                )
            )
        )
    return {"groups": members, "hosts": hosts}


def defined(value: Any) -> Any:
    """Return the value of a host variable.

    Raises AnsibleUndefinedVariable for a template with an undefined variable, whose text
    ansible-core 2.16 leaves in `hostvars`. Newer versions raise the error themselves.
    """
    if isinstance(value, Undefined) or isinstance(value, str) and re.search(r"\{[{%]", value):
        raise AnsibleUndefinedVariable(str(value))
    return value


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Return {name of a filter: its function}."""
        return {"mxcluster_inventory": mxcluster_inventory}
