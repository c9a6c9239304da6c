"""Evaluate templates of the roles as Ansible does."""

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

try:  # ansible-core 2.19 and newer
    from ansible.template import is_trusted_as_template, trust_as_template
except ImportError:
    from ansible.utils.unsafe_proxy import AnsibleUnsafe

    def trust_as_template(text):
        return text

    def is_trusted_as_template(value):
        return not isinstance(value, AnsibleUnsafe)


def is_unsafe(value):
    """Return True if Ansible never evaluates a template in `value`."""
    return not is_trusted_as_template(value)


def trusted(value):
    """Return `value`, of YAML, with its texts trusted as those of a playbook."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {name: trusted(part) for name, part in value.items()}
    return [trusted(part) for part in value] if isinstance(value, (list, tuple)) else value


def templated(value, variables):
    """Return Ansible's value of a text or list with templates.

    Args: `variables` {name: value}, whose values may have templates, too.
    """
    return Templar(DataLoader(), variables=trusted(variables)).template(trusted(value))
