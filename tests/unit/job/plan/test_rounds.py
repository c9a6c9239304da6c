"""The partners of nodes that measure the bandwidth between them."""

import pytest

from mxcluster.job.plan.rounds import MOST_ROUNDS, partners


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 16, 17, 100])
def test_each_round_pairs_the_nodes_and_the_number_of_rounds_is_bounded(count):
    hosts = ["node%d" % number for number in range(count)]
    found = {host: partners(hosts, host) for host in hosts}
    rounds = {len(of_host) for of_host in found.values()}
    assert len(rounds) == 1 and max(rounds) <= MOST_ROUNDS, rounds
    for host, of_host in found.items():
        for number, partner in enumerate(of_host):
            assert partner == "" or found[partner][number] == host != partner
        met = [partner for partner in of_host if partner]
        assert len(set(met)) == len(met) >= min(count, MOST_ROUNDS) - 1, "no pair meets twice"
