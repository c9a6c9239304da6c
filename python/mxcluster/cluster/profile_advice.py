"""Give advice about workers, servers and hosts from the speeds of a profile. All is pure.

profile.yml shows the advice beside the groups. A plan does not read it.
"""

import statistics
from typing import List, Sequence, Tuple

from mxcluster.lists import grouped, several
from mxcluster.model.profile import Profile
from mxcluster.numbers import figure

# Limits for the exchange's part of a step. Above MUCH, more servers can help. If the part would be
# below LITTLE even with a single server, one server is enough.
MUCH, LITTLE = 0.25, 0.05


def lines(profile: Profile) -> List[str]:
    """Return advice about workers, servers and hosts, as sentences from the measured speeds.

    The estimated time of a step is the slowest computation plus the slowest exchange, without any
    overlap.

    Args: `profile` with its groups and noise.
    """
    return _about_gain(profile) + _about_servers(profile) + _about_hosts(profile)


def _about_gain(profile: Profile) -> List[str]:
    workers, groups = profile.workers, profile.groups
    if len(workers) < 2:
        return []
    everyone = list(range(len(workers)))
    seconds, exchange = _step(profile, everyone)
    together, in_groups = _throughput(profile, [everyone]), _throughput(profile, groups)
    alone = {worker.name: worker.alone.samples_per_s for worker in workers}
    best = max(alone, key=lambda name: alone[name])
    hosts = len({worker.host for worker in workers})
    text = "a step of all %d workers takes about %s ms, including %s ms for the exchange: " % (
        len(workers),
        figure(1e3 * seconds),
        figure(1e3 * exchange),
    )
    text += "under dist_sync %s samples/s" % figure(together)
    if len(groups) > 1:
        text += ", under dist_gsync in these %d groups %s" % (len(groups), figure(in_groups))
    text += ", and %s alone computes %s" % (best, figure(alone[best]))
    if max(together, in_groups) > alone[best]:
        return [text]
    if _throughput(profile, groups, with_exchange=False) > alone[best]:
        many = "%d nodes" % hosts if hosts > 1 else "%d workers" % len(workers)
        return [
            "this network is too small to gain from %s: %s. Train with one worker, or with a "
            "larger batch_size or network" % (many, text)
        ]
    return ["%s: the workers slow each other down, so train with one worker" % text]


def _about_servers(profile: Profile) -> List[str]:
    workers, count = profile.workers, len(profile.servers)
    if len(workers) < 2 or not count:
        return []
    seconds, exchange = _step(profile, range(len(workers)))
    if exchange > MUCH * seconds:
        return [
            "the exchange with %s takes %.0f %% of a step: more servers (hosts in the "
            "group servers, or servers_per_host) can shorten the exchange"
            % (several(count, "server"), 100 * exchange / seconds)
        ]
    if count > 1 and count * exchange < LITTLE * seconds:
        return [
            "one server is enough (num_servers=1): the exchange with %d servers takes %s %% of a "
            "step" % (count, figure(100 * exchange / seconds))
        ]
    return []


def _about_hosts(profile: Profile) -> List[str]:
    found = []
    by_host = grouped((worker.host, worker) for worker in profile.workers)
    for host, workers in by_host.items():
        alone = [worker.alone.samples_per_s for worker in workers]
        together = [worker.together.samples_per_s for worker in workers]
        lost = 1 - statistics.median(both / one for one, both in zip(alone, together))
        if lost <= profile.noise:
            continue
        if len(workers) == 1:
            found.append(
                "%s: its worker is %.0f %% slower while the other workers compute. Check whether "
                "this host shares a machine with another host" % (host, 100 * lost)
            )
            continue
        is_slow = sum(together) <= max(alone) * (1 + profile.noise)
        cure = ", so workers_per_host=1 is as fast" if is_slow else ""
        found.append(
            "%s: its %d workers are %.0f %% slower together than alone. All these workers together "
            "compute %s samples/s, and one worker alone computes %s%s"
            % (
                host,
                len(workers),
                100 * lost,
                figure(sum(together)),
                figure(max(alone)),
                cure,
            )
        )
    return found


def _step(profile: Profile, members: Sequence[int]) -> Tuple[float, float]:
    """Return (seconds of a step, seconds of its exchange) for workers at positions `members`."""
    workers = [profile.workers[member] for member in members]
    exchange = max(worker.exchange_s for worker in workers)
    compute = profile.batch_size / min(worker.together.samples_per_s for worker in workers)
    return compute + exchange, exchange


def _throughput(
    profile: Profile, groups: Sequence[Sequence[int]], with_exchange: bool = True
) -> float:
    """Return the samples/s of all workers if the members of each group wait for each other.

    Args: `with_exchange` False to leave out the time of the exchange.
    """
    rate = 0.0
    for group in groups:
        seconds, exchange = _step(profile, group)
        rate += profile.batch_size * len(group) / (seconds - (not with_exchange) * exchange)
    return rate
