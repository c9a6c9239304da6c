"""Define the arguments of mxcluster_preflight, whose plugin also runs without the package."""

from typing import Optional, Sequence

from mxcluster.ansible import arguments
from mxcluster.model.record import Record, field
from mxcluster.model.shapes import optional


def _paths(value: object) -> Sequence[str]:
    return [arguments.path(word) for word in arguments.texts(value)]


class Arguments(Record, strict=True, kind_key="command"):
    """The arguments of each command."""


class Controller(Arguments, kind="controller"):
    """Check the controller, the inventory and the extra variables, and contact no node."""

    groups: Sequence[str] = field(arguments.texts)
    """The groups of the inventory that the playbooks need."""
    paths: Sequence[str] = field(_paths)
    """Paths that programs later get as interpreters, search paths or options; first the state
    folder of the inventory."""
    known_hosts: str = field(arguments.path)
    """The file of host keys that ssh reads beside the user's own file."""
    name: str = field(arguments.text)
    """The name of this inventory's block in `known_hosts`."""
    site_variables: Sequence[str] = field(arguments.texts, default=[])
    """The names of the site's own variables in the inventory."""


class Connection(Arguments, kind="connection"):
    """Open Ansible's connection to the node, and check the user and the Python on the node."""

    users: Sequence[str] = field(arguments.texts, default=[])
    """The allowed users on the node, after become; empty for all users."""
    required: bool = field(arguments.flag, default=True)
    """True if the task fails for a node that does not answer. Otherwise the plugin shows a line
    with the name of the node, and the result `lost` has the reason."""
    modules: bool = field(arguments.flag, default=False)
    """True if modules of Ansible will run on the node. The task then refuses a Python that is too
    old for this ansible-core."""
    trainer: Optional[str] = field(optional(arguments.text), default=None)
    """The user that trains on the node, empty for the login user. The task fails for root, and for
    an empty value if root connects over ssh. None for a node without training."""
