"""Filter: choose the versions of a node's software with mxcluster.cluster.versions."""

DOCUMENTATION = r"""
name: mxcluster_versions
short_description: Choose the MXNet, CUDA, cuDNN and driver versions for a node
description: Fails with the reason and the nearest working versions if the choice cannot work on the
  node.
positional: choice
options:
  _input:
    description: The facts of the node, C(host), C(system), C(system_version), C(architecture),
      C(python), C(gpus), C(driver), C(own_system), C(family), C(missing).
    type: dict
    required: true
  choice:
    description: The user's choice, such as C(mxnet_version) and C(cuda_version).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Choose the versions for the node
  ansible.builtin.set_fact:
    chosen: "{{ machine | mxcluster_versions({'cuda_version': '9.2', 'mxnet_version': '1.2.1'}) }}"
"""

RETURN = r"""
_value:
  description: The software of the node, see C(mxcluster.cluster.versions.decide).
  type: dict
"""

from typing import Any, Callable, Dict

from ansible.errors import AnsibleFilterError

from mxcluster.cluster import versions
from mxcluster.errors import MxclusterError
from mxcluster.model import shapes

Json = Dict[str, Any]

# The facts of Ansible. The other facts come from the checked answer of mxcluster_machine.
FACTS = shapes.fields(
    dict.fromkeys(("system", "system_version", "architecture", "family"), shapes.words),
    rest=lambda value: value,
)


def mxcluster_versions(node: Json, choice: Json) -> Json:
    """Return the software to install on a node, as described at `versions.decide`.

    Args: `node` {fact: value} of the node; `choice` {name: value} of the user's variables, such as
    "cuda_version". Raises AnsibleFilterError if a fact is invalid, or if the choice does not work
    on the node.
    """
    try:
        return versions.decide(choice, FACTS(node))
    except (MxclusterError, shapes.Wrong) as refusal:
        raise AnsibleFilterError("%s: %s" % (node["host"], refusal))


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Return {name of a filter: its function}."""
        return {
            "mxcluster_versions": mxcluster_versions,
            "mxcluster_other_cublas": versions.other_cublas,
        }
