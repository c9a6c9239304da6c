"""The layout of integer keys on the servers (pure).

ps-lite puts an array on server ``(key * 9973) % S``, computed in 32 bits, so that keys above 215329 overflow
(run on MXNet 1.9.1).  Every group owns one block of `stride` keys, and the stride is a multiple of S: all keys
of one parameter, over all groups, then live on the same server, where they share one master copy.  The last S
keys of a block are the group's clocks, exactly one on each server.
"""

MAX_KEY = 215329
_HASH = 9973


class KeyLayout(object):
    """Keys for `groups` groups on `servers` servers.

    Attributes: ``stride`` keys of one block; ``capacity`` parameters that fit.
    Raises ValueError when there is no room for a single parameter.
    """

    def __init__(self, groups, servers):
        self.groups, self.servers = groups, servers
        self.stride = (MAX_KEY + 1) // groups // servers * servers
        self.capacity = self.stride - servers
        if self.capacity < 1:
            raise ValueError("%d groups on %d servers leave no key for a parameter: ps-lite has %d keys; "
                             "use fewer groups or servers" % (groups, servers, MAX_KEY + 1))

    def key(self, group, index):
        """The key of parameter `index` for `group`; raises ValueError when the index does not fit."""
        if not 0 <= index < self.capacity:
            raise ValueError("parameter key %r is outside 0 .. %d, which is what %d groups leave; "
                             "use smaller integer keys or fewer groups" % (index, self.capacity - 1, self.groups))
        return group * self.stride + index

    def clock(self, group, slot):
        """The key of the group's clock number `slot` (0 .. servers-1); see `server_of` for where it lives."""
        return group * self.stride + self.capacity + slot

    def clocks(self, group):
        """The keys of all clocks of `group`, ordered by the server that they live on."""
        return sorted((self.clock(group, slot) for slot in range(self.servers)), key=self.server_of)

    def split(self, key):
        """(group, parameter index) of a key, or (group, None) of a clock."""
        group, index = divmod(key, self.stride)
        return group, (index if index < self.capacity else None)

    def server_of(self, key):
        """The rank of the server that ps-lite chooses for a small array under `key`."""
        return key * _HASH % self.servers


def merges_per_server(layout, key, size, bound):
    """How many merges one pushed array causes on each server: a list of `servers` zeros and ones.

    ps-lite splits an array of `bound` or more elements (MXNET_KVSTORE_BIGARRAY_BOUND) over all servers, under
    one key; each part is merged, and counted, on its own.
    """
    if size >= bound:
        return [1] * layout.servers
    owner = layout.server_of(key)
    return [int(server == owner) for server in range(layout.servers)]
