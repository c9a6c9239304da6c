"""Place parameters on server processes under ``dist_gsync`` with several groups. Pure.

In this module a host is a server of the plan. A host has one server process for each group. In a
server process, stock MXNet adds up the pushes of the group's members. A parameter has one home host
for all groups. The processes of the home host share the parameter's newest weights. The plan may
name the home hosts (MXCLUSTER_PLACEMENT, from the profile of the cluster). The layout cuts a large
parameter into parts, and each host is the home of one part.

ps-lite puts an array on the server with rank ``key * 9973 % servers``. The product has 32 bits, and
overflows for keys above 215329 (measured on MXNet 1.9.1). A parameter has a block of consecutive
keys, one key for each server process.
"""

from typing import List, Mapping, Optional, Sequence, Tuple

Part = Tuple[int, Optional[int], Optional[int]]  # (home host, begin, end), see `Layout.parts`

MAX_KEY = 215329
_HASH = 9973


class Layout(object):
    """The keys of all parameters for `groups` groups on `hosts` hosts.

    Args:
        groups: the number of groups.
        hosts: the number of hosts.
        ranks: the rank of each server process in ps-lite. The process ``host * groups + group``
            serves a group on a host.
        placement: the home hosts of the first parameters. The home host of a later parameter is
            the parameter's number modulo `hosts`.

    Attribute: ``capacity``, the largest number of parameters.

    Raises ValueError in three cases:

    - `ranks` is not a permutation of 0 .. groups * hosts - 1;
    - `placement` contains a number outside 0 .. hosts - 1;
    - groups * hosts exceeds MAX_KEY + 1, the number of usable keys.
    """

    def __init__(
        self, groups: int, hosts: int, ranks: List[int], placement: Sequence[int] = ()
    ) -> None:
        self.groups, self.hosts, self.servers = groups, hosts, groups * hosts
        if sorted(ranks) != list(range(self.servers)):
            raise ValueError(
                "the servers have the ranks %r in place of the numbers 0 to %d: start the job "
                "again with train.yml" % (ranks, self.servers - 1)
            )
        unknown = sorted(set(placement) - set(range(hosts)))
        if unknown:
            raise ValueError(
                "MXCLUSTER_PLACEMENT names server %d, but the job has %d servers, numbered from 0: "
                "start the job again with train.yml" % (unknown[0], hosts)
            )
        self._placement = placement
        offsets = {offset * _HASH % self.servers: offset for offset in range(self.servers)}
        self.ranks = ranks
        self._offsets = [offsets[rank] for rank in ranks]
        self._processes = {offset: process for process, offset in enumerate(self._offsets)}
        self.capacity = (MAX_KEY + 1) // self.servers
        if not self.capacity:
            raise ValueError(
                "%d groups on %d servers leave no key for a parameter, because ps-lite "
                "has %d keys: use fewer groups or servers" % (groups, hosts, MAX_KEY + 1)
            )

    def key(self, group: int, parameter: int, host: int) -> int:
        """Return the key of `group` for a parameter, or a part of the parameter, on `host`.

        Args: `group`, `parameter` and `host` are numbers from 0. Raises ValueError if `parameter`
        is outside 0 .. ``capacity`` - 1.
        """
        if not 0 <= parameter < self.capacity:
            raise ValueError(
                "parameter key %r is outside 0 .. %d, the range for %d groups on %d servers: use "
                "smaller integer keys, or fewer groups or servers"
                % (parameter, self.capacity - 1, self.groups, self.hosts)
            )
        return parameter * self.servers + self._offsets[host * self.groups + group]

    def split(self, key: int) -> Tuple[int, int]:
        """Return (number of the group, number of the parameter) for a `key` of `Layout.key`."""
        parameter, offset = divmod(key, self.servers)
        return self._processes[offset] % self.groups, parameter

    def home(self, parameter: int) -> int:
        """Return the number of the home host of the uncut parameter with the number `parameter`."""
        if parameter < len(self._placement):
            return self._placement[parameter]
        return parameter % self.hosts

    def parts(self, parameter: int, size: int, bound: int) -> List[Part]:
        """Return [(home host, begin, end), ...], one item for each part of a parameter.

        A part holds the elements begin .. end - 1. Begin and end are None for an uncut parameter. A
        parameter with `bound` or more elements has one part on each host. The method cuts the
        parameter at the same elements as ps-lite.

        Args:
            parameter: the parameter's number.
            size: the parameter's number of elements.
            bound: the least number of elements of a cut parameter.
        """
        if size < bound or self.hosts == 1:
            return [(self.home(parameter), None, None)]
        cuts = [int(float(size) / self.hosts * host + 0.5) for host in range(self.hosts + 1)]
        return [(host, cuts[host], cuts[host + 1]) for host in range(self.hosts)]


def from_environment(environ: Mapping[str, str]) -> Layout:
    """Return the Layout of this job from the plan's variables in `environ`."""
    groups = 1 + max(int(group) for group in environ["MXCLUSTER_GROUPS"].split(","))
    ranks = [int(rank) for rank in environ["MXCLUSTER_SERVER_RANKS"].split(",")]
    return Layout(groups, len(ranks) // groups, ranks, placement(environ))


def of_ranks(environ: Mapping[str, str]) -> Optional[Layout]:
    """Return the Layout of a job in which every server serves all workers, or None.

    The number of a host in this layout is a server's rank in ps-lite. Without MXCLUSTER_PLACEMENT
    in `environ` the result is None. A store then uses the numbers of the parameters as keys, and
    ps-lite chooses the servers.
    """
    homes = placement(environ)
    if not homes:
        return None
    servers = int(environ["DMLC_NUM_SERVER"])
    return Layout(1, servers, list(range(servers)), homes)


def placement(environ: Mapping[str, str]) -> List[int]:
    """Return the home servers of the first parameters from MXCLUSTER_PLACEMENT.

    The variable in `environ` is a list of SERVER*PARAMETERS. For example, "1*2,0*1" puts two
    parameters on server 1 and one on server 0, and gives [1, 1, 0]. Without the variable the result
    is [].
    """
    runs = [run.split("*") for run in environ.get("MXCLUSTER_PLACEMENT", "").split(",") if run]
    return [int(server) for server, count in runs for _ in range(int(count))]
