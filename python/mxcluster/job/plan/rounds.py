"""Give each node of a rendezvous its partners for the measurement of the bandwidth."""

from typing import List, Sequence

MOST_ROUNDS = 16  # more nodes than this have 16 partners each, so that the rounds stay few


def partners(hosts: Sequence[str], host: str) -> List[str]:
    """Return the partner of `host` in each round, "" for a round without one.

    In each round every host has one partner at most. Up to MOST_ROUNDS rounds, all pairs of hosts
    meet once (the circle method of a tournament).
    """
    seats = [*hosts, ""] if len(hosts) % 2 else list(hosts)
    last, own = len(seats) - 1, seats.index(host)
    found = []
    for number in range(min(last, MOST_ROUNDS)):
        # Two seats meet if their sum is the number of the round, modulo `last`. One seat would meet
        # itself, and meets the last seat instead.
        alone = number * (last + 1) // 2 % last
        other = alone if own == last else last if own == alone else (number - own) % last
        found.append(seats[other])
    return found
