"""Give advice about workers, servers and hosts from the speeds of a profile. All is pure.

profile.yml shows the advice beside the groups. A plan does not read it. `predictions` compares the
schemes.
"""

import statistics
from typing import List

from mxcluster.cluster import predictions
from mxcluster.lists import grouped, several
from mxcluster.model.profile import Profile
from mxcluster.numbers import figure

# Limits for the exchange's part of a step. Above MUCH, more servers can help. If the part would be
# below LITTLE even with a single server, one server is enough.
MUCH, LITTLE = 0.25, 0.05


def lines(profile: Profile) -> List[str]:
    """Return advice about workers, servers and hosts, as sentences from the measured speeds.

    The time of a step is that of `predictions.step`.

    Args: `profile` with its groups and noise.
    """
    return _about_gain(profile) + _about_servers(profile) + _about_hosts(profile)


def _about_gain(profile: Profile) -> List[str]:
    workers = profile.workers
    if len(workers) < 2:
        return []
    hosts = len({worker.host for worker in workers})
    text = "a step of all %d workers takes about %s ms, including %s ms for the exchange" % (
        len(workers),
        figure(1e3 * predictions.step(profile, workers)),
        figure(1e3 * predictions.exchange(workers)),
    )
    best = predictions.fastest_alone(profile)
    alone = best.alone.samples_per_s
    if predictions.fastest_of_several(profile) > alone:
        return [text]
    text += ", and %s alone computes %s samples/s" % (best.name, figure(alone))
    if sum(worker.together.samples_per_s for worker in workers) > alone:
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
    seconds, exchange = predictions.step(profile, workers), predictions.exchange(workers)
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
