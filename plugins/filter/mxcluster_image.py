"""Filter: plan the container image for the role container_image, by cluster.container_image."""

DOCUMENTATION = r"""
name: mxcluster_image
short_description: Plan the contents of a container image, and its way to the nodes
description:
  - V(recipe) returns the wheels of an image, as the needs for M(mxcluster_downloads).
  - V(distribution) returns the node that gives the image, and the nodes that get the image.
  - V(ids) returns the possible ids of the image in an archive.
positional: what
options:
  _input:
    description: The environment of a node (V(recipe)), the output of C(image inspect) by host
      (V(distribution)), or the text of manifest.json in an archive (V(ids)).
    type: raw
    required: true
  what:
    description: The name of the wanted result. More arguments go to the function for this result in
      C(mxcluster.cluster.container_image).
    type: str
    required: true
    choices: [recipe, distribution, ids]
"""

EXAMPLES = r"""
- name: Plan the wheels of the image
  ansible.builtin.set_fact:
    recipe: "{{ environment | mxcluster_image('recipe', '3.11', 'debian:12', dockerfile) }}"
"""

RETURN = r"""
_value:
  description: See C(mxcluster.cluster.container_image).
  type: raw
"""

from typing import Any, Callable, Dict

from ansible.errors import AnsibleFilterError

from mxcluster.cluster import container_image
from mxcluster.errors import MxclusterError

FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "recipe": container_image.recipe,
    "distribution": container_image.distribution,
    "ids": container_image.ids_in,
}


def mxcluster_image(value: Any, what: str, *arguments: Any) -> Any:
    """Return the result of FUNCTIONS[what] for `value` and the additional `arguments`.

    Raises AnsibleFilterError with the reason if the function refuses the arguments.
    """
    try:
        return FUNCTIONS[what](value, *arguments)
    except MxclusterError as refusal:
        raise AnsibleFilterError(str(refusal))


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Return {name of a filter: its function}."""
        return {"mxcluster_image": mxcluster_image}
