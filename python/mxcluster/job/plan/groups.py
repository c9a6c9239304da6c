"""Form groups of workers. Under dist_gsync the members of a group wait for each other."""

from typing import List, Mapping, Optional, Sequence, Tuple

from mxcluster.cluster_files import parse_groups
from mxcluster.errors import BadInput
from mxcluster.lists import unique
from mxcluster.model.host_variables import HostVariables

Groups = Tuple[List[List[int]], List[str]]


def from_labels(lines: Sequence[str], variables: Mapping[str, HostVariables]) -> Optional[Groups]:
    """Return (groups, labels) by the host variable worker_group, or None without this variable.

    Each group is a list of worker indices. Each label is a value of worker_group. Raises BadInput
    if only some hosts set worker_group.

    Args: `lines` the host of each worker; `variables` {host: host variables}.
    """
    hosts = unique(lines)
    labels = {host: variables[host].worker_group for host in hosts}
    without = [host for host in hosts if not labels[host]]
    if len(without) == len(hosts):
        return None
    if without:
        raise BadInput(
            "%s: worker_group is missing, but other hosts have groups (%s): set worker_group for "
            "the hosts of all workers, or for no host"
            % (", ".join(without), ", ".join(unique(filter(None, labels.values()))))
        )
    names = unique(labels[host] for host in lines)
    return [
        [index for index, host in enumerate(lines) if labels[host] == name] for name in names
    ], names


def from_file(text: str, addresses: Sequence[str], name: str) -> Groups:
    """Return (groups, labels) of a groups file, in the order of the groups' first members.

    Each group is a list of worker indices. The labels are the numbers of the groups as text, from
    "0" on.

    Args: `text` the content of the file; `addresses` the address of each worker; `name` the name of
    the file in messages.
    """
    groups = sorted(parse_groups(text, addresses, name))
    return groups, [str(number) for number in range(len(groups))]


def first(groups: Groups, count: int) -> Groups:
    """Return (groups, labels) of the first `count` workers, without empty groups.

    Args: `groups` (lists of worker indices, their labels) of all workers.
    """
    kept = [
        ([index for index in members if index < count], label) for members, label in zip(*groups)
    ]
    return [members for members, _ in kept if members], [
        label for members, label in kept if members
    ]
