"""Filter: make a node record with mxcluster.model.node_record on the controller."""

DOCUMENTATION = r"""
name: mxcluster_record
short_description: Make the node record from the facts that a node reports
description:
  - Checks every field of the node's facts, and adds the facts of the role, which have priority.
  - Fails if a field is invalid, and names this field.
options:
  _input:
    description: RV(mxcluster_node#module:record); in check mode an empty dict.
    type: dict
    required: true
  host:
    description: The node's name in the inventory.
    type: str
    required: true
  places:
    description: The paths on the node, and other facts that come from the role's variables.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the node record
  ansible.builtin.debug:
    msg: "{{ asked.record | mxcluster_record(inventory_hostname, {'job_dir': mxcluster_job_dir}) }}"
"""

RETURN = r"""
_value:
  description: The node record, see C(mxcluster.model.node_record).
  type: dict
"""

from typing import Callable, Dict, Mapping

from ansible.errors import AnsibleFilterError

from mxcluster.errors import MxclusterError
from mxcluster.model import node_record

Json = Dict[str, object]
Given = Mapping[str, object]


def mxcluster_record(facts: object, host: str, places: Given) -> Json:
    """Return the record of the node `host`, or raise AnsibleFilterError for an invalid field.

    Args: `facts` that the node reports; `places` {name: value} of the node's paths and of other
    facts, which replace facts of the same name in `facts`.
    """
    try:
        return node_record.make(host, facts, places).encode()
    except MxclusterError as error:
        raise AnsibleFilterError(str(error))


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self) -> Dict[str, Callable[[object, str, Given], Json]]:
        """Return {name of a filter: its function}."""
        return {"mxcluster_record": mxcluster_record}
