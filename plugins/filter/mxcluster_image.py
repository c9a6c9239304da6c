"""Filter: what the role container_image has to do, with mxcluster.cluster.container_image."""

DOCUMENTATION = r"""
name: mxcluster_image
short_description: The wheels of a container image, and the nodes that lack the image
description:
  - V(recipe) returns the wheels of an image, in the form of the needs for M(mxcluster_downloads).
  - V(distribution) returns which node gives the image to which others.
  - V(ids) returns the ids that the image in an archive can have.
positional: what
options:
  _input:
    description: The environment of a node (V(recipe)), the answers of C(image inspect) by host
      (V(distribution)), or the text of manifest.json in an archive (V(ids)).
    type: raw
    required: true
  what:
    description: The wanted result. Further arguments are those of the function of this name in
      C(mxcluster.cluster.container_image).
    type: str
    required: true
    choices: [recipe, distribution, ids]
"""

EXAMPLES = r"""
- name: Find the wheels of the image
  ansible.builtin.set_fact:
    recipe: "{{ environment | mxcluster_image('recipe', '3.11', 'debian:12', dockerfile) }}"
"""

RETURN = r"""
_value:
  description: See C(mxcluster.cluster.container_image).
  type: raw
"""

from ansible.errors import AnsibleFilterError

from mxcluster.cluster import container_image
from mxcluster.errors import MxclusterError

FUNCTIONS = {
    "recipe": container_image.recipe,
    "distribution": container_image.distribution,
    "ids": container_image.ids_in,
}


def mxcluster_image(value, what, *arguments):
    """Return the result of the function `what` of `container_image` for `value`.

    Args: `arguments` the further arguments of the function. AnsibleFilterError with the reason if
    it refuses them.
    """
    try:
        return FUNCTIONS[what](value, *arguments)
    except MxclusterError as refusal:
        raise AnsibleFilterError(str(refusal))


class FilterModule(object):
    """The filter plugin that Ansible loads."""

    def filters(self):
        """Return the filters of this file by name."""
        return {"mxcluster_image": mxcluster_image}
