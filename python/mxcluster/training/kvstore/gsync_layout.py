"""Place parameters on server processes under ``dist_gsync`` with several groups. Pure.

A server of the plan is called a host here, and has one server process for each group. In a server
process, stock MXNet adds up the pushes of the group's members. A parameter has a home host, the
same for all groups. The processes of this host share the parameter's newest weights. The plan may
name the homes (MXCLUSTER_PLACEMENT, from the profile of the cluster). The layout cuts a large
parameter, and each host is the home of one part.

ps-lite puts an array on the server with rank ``key * 9973 % servers``, computed in 32 bits, so keys
above 215329 overflow (measured on MXNet 1.9.1). A parameter therefore has a block of keys, one for
each server process.
"""

MAX_KEY = 215329
_HASH = 9973


class Layout(object):
    """The keys for `groups` groups on `hosts` hosts.

    Args: `ranks` the ranks that ps-lite gives the server processes, in the processes' order. The
    process ``host * groups + group`` serves a group on a host. `placement` the home hosts of the
    first parameters; the home of a further parameter is its number modulo `hosts`. Attribute:
    ``capacity``, the largest number of parameters. Raises ValueError if `ranks` or `placement` do
    not fit the number of servers, or if there is no key even for one parameter.
    """

    def __init__(self, groups, hosts, ranks, placement=()):
        self.groups, self.hosts, self.servers = groups, hosts, groups * hosts
        if sorted(ranks) != list(range(self.servers)):
            raise ValueError(
                "the ranks %r of the servers are not the numbers from 0 to %d: start the job again "
                "with train.yml" % (ranks, self.servers - 1)
            )
        strange = sorted(set(placement) - set(range(hosts)))
        if strange:
            raise ValueError(
                "MXCLUSTER_PLACEMENT names server %d, but the job has %d servers, numbered from 0: "
                "start the job again with train.yml" % (strange[0], hosts)
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

    def key(self, group, parameter, host):
        """Return the key for `group` and the part of `parameter` whose home is `host`.

        Raises ValueError if `parameter` is not below ``capacity``.
        """
        if not 0 <= parameter < self.capacity:
            raise ValueError(
                "parameter key %r is outside 0 .. %d, the range that %d groups on %d servers "
                "leave: use smaller integer keys, or fewer groups or servers"
                % (parameter, self.capacity - 1, self.groups, self.hosts)
            )
        return parameter * self.servers + self._offsets[host * self.groups + group]

    def split(self, key):
        """Return (group, parameter) for `key`, the reverse of `Layout.key`."""
        parameter, offset = divmod(key, self.servers)
        return self._processes[offset] % self.groups, parameter

    def home(self, parameter):
        """Return the home host of a `parameter` (its number) that is not cut."""
        if parameter < len(self._placement):
            return self._placement[parameter]
        return parameter % self.hosts

    def parts(self, parameter, size, bound):
        """Return [(host, begin, end), ...], the home of each part of a parameter of `size` numbers.

        A parameter of `bound` or more numbers is cut as ps-lite cuts it for as many servers as
        there are hosts. Begin and end are None for a parameter that is not cut.
        """
        if size < bound or self.hosts == 1:
            return [(self.home(parameter), None, None)]
        cuts = [int(float(size) / self.hosts * host + 0.5) for host in range(self.hosts + 1)]
        return [(host, cuts[host], cuts[host + 1]) for host in range(self.hosts)]


def from_environment(environ):
    """Return the Layout of this process's job from `environ`, which has the plan's variables."""
    groups = 1 + max(int(group) for group in environ["MXCLUSTER_GROUPS"].split(","))
    ranks = [int(rank) for rank in environ["MXCLUSTER_SERVER_RANKS"].split(",")]
    return Layout(groups, len(ranks) // groups, ranks, placement(environ))


def of_ranks(environ):
    """Return the Layout of a job whose servers serve all workers, None without a placement.

    The layout's hosts are the servers' ranks in ps-lite. Without a placement a store uses the
    numbers of the parameters as keys, and ps-lite chooses the servers.
    """
    found = placement(environ)
    if not found:
        return None
    servers = int(environ["DMLC_NUM_SERVER"])
    return Layout(1, servers, list(range(servers)), found)


def placement(environ):
    """Return the servers of the first parameters (list of int) that the plan names in `environ`.

    MXCLUSTER_PLACEMENT has runs SERVER*PARAMETERS: "1*2,0*1" is [1, 1, 0]. Without this variable
    the list is empty.
    """
    runs = [run.split("*") for run in environ.get("MXCLUSTER_PLACEMENT", "").split(",") if run]
    return [int(server) for server, count in runs for _ in range(int(count))]
