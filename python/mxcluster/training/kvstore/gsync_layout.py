"""Place parameters on server processes under ``dist_gsync`` with several groups. Pure.

Each server of the plan, called a host here, is one server process for each group. In a server
process, stock MXNet adds up the pushes of its group's members. A parameter has a home host, the
same for all groups, and the processes of this host share its newest weights. A large parameter is
cut, and each host is home to one part.

ps-lite puts an array on the server with rank ``key * 9973 % servers``, computed in 32 bits, so keys
above 215329 overflow (measured on MXNet 1.9.1). A parameter therefore has a block of keys, one for
each server process.
"""

MAX_KEY = 215329
_HASH = 9973


class Layout(object):
    """The keys for `groups` groups on `hosts` hosts.

    Args: `ranks` the ranks that ps-lite gives the server processes, in the processes' order. The
    process ``host * groups + group`` serves a group on a host. Attribute: ``capacity``, the largest
    number of parameters. Raises ValueError if the layout has no key for a single parameter.
    """

    def __init__(self, groups, hosts, ranks):
        self.groups, self.hosts, self.servers = groups, hosts, groups * hosts
        if sorted(ranks) != list(range(self.servers)):
            raise ValueError(
                "the ranks %r of the servers are not the numbers from 0 to %d: start the job again "
                "with train.yml" % (ranks, self.servers - 1)
            )
        offsets = {offset * _HASH % self.servers: offset for offset in range(self.servers)}
        self.ranks = ranks
        self._offsets = [offsets[rank] for rank in ranks]
        self._processes = {offset: process for process, offset in enumerate(self._offsets)}
        self.capacity = (MAX_KEY + 1) // self.servers
        if not self.capacity:
            raise ValueError(
                "%d groups on %d hosts of servers leave no key for a parameter, because ps-lite "
                "has %d keys: use fewer groups or servers" % (groups, hosts, MAX_KEY + 1)
            )

    def key(self, group, parameter, host):
        """Return the key for `group` and the part of `parameter` whose home is `host`.

        Raises ValueError if `parameter` is not below ``capacity``.
        """
        if not 0 <= parameter < self.capacity:
            raise ValueError(
                "parameter key %r is outside 0 .. %d, the range that %d groups leave: use smaller "
                "integer keys or fewer groups" % (parameter, self.capacity - 1, self.groups)
            )
        return parameter * self.servers + self._offsets[host * self.groups + group]

    def split(self, key):
        """Return (group, parameter) for `key`, the reverse of `Layout.key`."""
        parameter, offset = divmod(key, self.servers)
        return self._processes[offset] % self.groups, parameter

    def parts(self, parameter, size, bound):
        """Return [(host, begin, end), ...], the home of each part of a parameter of `size` numbers.

        A parameter of `bound` or more numbers is cut as ps-lite cuts it for as many servers as
        there are hosts. Begin and end are None for a parameter that is not cut.
        """
        if size < bound or self.hosts == 1:
            return [(parameter % self.hosts, None, None)]
        cuts = [int(float(size) / self.hosts * host + 0.5) for host in range(self.hosts + 1)]
        return [(host, cuts[host], cuts[host + 1]) for host in range(self.hosts)]


def from_environment(environ):
    """Return the Layout of this process's job from `environ`, which has the plan's variables."""
    groups = 1 + max(int(group) for group in environ["MXCLUSTER_GROUPS"].split(","))
    ranks = [int(rank) for rank in environ["MXCLUSTER_SERVER_RANKS"].split(",")]
    return Layout(groups, len(ranks) // groups, ranks)
