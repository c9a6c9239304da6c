"""Filter: check the knob secret_env with mxcluster.job.options.cast_secret_env."""

DOCUMENTATION = r"""
name: mxcluster_secret_env
short_description: Separate the values of the knob secret_env from its names and problems
description:
  - Checks the variables like those of the knob env. A module cannot replace this filter, because
    Ansible masks the values of a module's secret argument wherever they occur in its result.
options:
  _input:
    description: A dict, or a dict as JSON text; its values may come from a vault.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Show the names of the secret variables
  ansible.builtin.debug:
    msg: "{{ (secret_env | mxcluster_secret_env).names }}"
"""

RETURN = r"""
_value:
  description: C(env), the variables; C(names), their names; C(problems), the messages about errors,
    without any value.
  type: dict
"""

from typing import Any, Callable, Dict

from mxcluster.job.options import cast_secret_env

Json = Dict[str, Any]


def mxcluster_secret_env(given: Any) -> Json:
    """Return {"env": {name: value}, "names": [...], "problems": [...]} of the knob secret_env.

    All entries are strings. "problems" has one error message for each invalid variable.

    Args: `given` the knob, a dict or a JSON string. The values of the dict may be vaults.
    """
    if isinstance(given, dict):  # Ansible decrypts a vault's value only on its conversion to str
        given = {
            name: str(value) if hasattr(value, "__ENCRYPTED__") else value
            for name, value in given.items()
        }
    env, problems = cast_secret_env(given)
    return {"env": env, "names": sorted(env), "problems": problems}


class FilterModule(object):
    """Gives Ansible the filters of this file."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """Return {name of a filter: its function}."""
        return {"mxcluster_secret_env": mxcluster_secret_env}
