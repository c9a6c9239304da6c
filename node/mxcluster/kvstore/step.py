"""What a kv-store knows about training steps, apart from MXNet and the network (pure)."""

import collections


class StepPattern(object):
    """Learns from one step which keys a step pulls, and says when the last of them has come.

    Module and Gluon push and pull key by key.  A store that waited for its group at every key would wait as often
    as there are parameters (143 ms a step against 80, with 65 small keys: run), so pulls are collected and the
    wait comes once, at the last of them.  Which one is the last is learnt in the first step, in which every pull is
    served by itself; a step that pulls other keys than the one before is noticed, and learnt anew.
    """

    def __init__(self):
        self._expected = None
        self._pushed = set()
        self._pulled = set()

    @property
    def learning(self):
        """True during the first step, of which every pull is served by itself."""
        return self._expected is None

    def push(self, key):
        """Notes a push; True when it begins a new step, before which everything collected must be served."""
        begins = key in self._pushed
        if begins:
            self._expected = self._pulled
            self._pushed, self._pulled = set(), set()
        self._pushed.add(key)
        return begins

    def pull(self, key):
        """Notes a pull; True when it must be served now: the step's last one, or one outside the pattern."""
        if key not in self._pushed:
            return True
        self._pulled.add(key)
        return self._expected is None or self._expected <= self._pulled


class Backoff(object):
    """How long to sleep before each look at a clock, in seconds.

    The first sleep is most of the shortest of the last waits, so that a long wait costs few looks, each of which queues up
    behind the pushes on the servers.  A single long wait does not count, or one late worker would make the others late in
    the next step.  After it the pauses grow from `shortest` to `longest`.
    """

    def __init__(self, shortest=0.001, longest=0.01, remembered=4):
        self._shortest, self._longest = shortest, longest
        self._waits = collections.deque([0.0] * remembered, maxlen=remembered)

    def pauses(self):
        """Yields the sleeps of one wait, for ever; the first may be 0."""
        first = 0.8 * min(self._waits)
        yield first if first > 2 * self._shortest else 0.0
        pause = self._shortest
        while True:
            yield pause
            pause = min(pause * 1.5, self._longest)

    def waited(self, seconds):
        """Remembers how long a wait took."""
        self._waits.append(seconds)


class Staleness(object):
    """Y of Grouping-SGD: the updates of a parameter since the group's own last one, this one counted.

    Source: MXNet-G, kvstore_dist_server.h (``Y = max(1, N - L_g + 1)``); Jiang et al., CCGrid 2019.
    """

    def __init__(self):
        self._updates = {}
        self._last = {}

    def update(self, group, index):
        """Counts an update of parameter `index` by `group` and returns its Y (>= 1)."""
        before = self._updates.get(index, 0)
        y = before - self._last.get((group, index), 0) + 1
        self._updates[index] = self._last[group, index] = before + 1
        return y
