"""Doorway to mxcluster.options.cast_secret_env."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
name: mxcluster_secret_env
short_description: The knob secret_env, apart from what may be told of it
description:
  - Checks the variables as those of the knob env are checked. It is a filter, since a module would have to be given the
    values, and Ansible masks those wherever they occur in its result.
options:
  _input:
    description: The dict, or one written as JSON; its values may be a vault's.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Show what is given
  ansible.builtin.debug:
    msg: "{{ (secret_env | mxcluster_secret_env).names }}"
"""

RETURN = r"""
_value:
  description: C(env), the variables; C(names), their names; C(problems), what is wrong, without any value.
  type: dict
"""

from ansible.errors import AnsibleFilterError

try:
    from mxcluster.options import cast_secret_env
except ImportError as error:
    raise AnsibleFilterError("the controller's Python cannot import mxcluster (%s): run `make venv`" % error)


def mxcluster_secret_env(given):
    """What is given, cast and checked."""
    if isinstance(given, dict):  # a value of a vault is no string until somebody asks for it
        given = {name: str(value) if hasattr(value, "__ENCRYPTED__") else value for name, value in given.items()}
    env, problems = cast_secret_env(given)
    return {"env": env, "names": sorted(env), "problems": problems}


class FilterModule(object):
    """What Ansible looks for."""

    def filters(self):
        """The filters of this file by name."""
        return {"mxcluster_secret_env": mxcluster_secret_env}
