"""Keys under dist_gsync: each group's part of a parameter is on the group's own server process.

The process is on the parameter's home host.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxcluster.training.kvstore.key_layout import (
    MAX_KEY,
    Layout,
    from_environment,
    of_ranks,
    placement,
)


def made(groups, hosts, seed=0):
    ranks = list(range(groups * hosts))
    random.Random(seed).shuffle(ranks)
    return Layout(groups, hosts, ranks)


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 99), st.data())
def test_a_key_leads_to_its_process_and_back(groups, hosts, seed, data):
    layout = made(groups, hosts, seed)
    group, host = data.draw(st.integers(0, groups - 1)), data.draw(st.integers(0, hosts - 1))
    parameter = data.draw(st.integers(0, layout.capacity - 1))
    key = layout.key(group, parameter, host)
    assert 0 <= key <= MAX_KEY and layout.split(key) == (group, parameter)
    assert (
        key * 9973 % layout.servers == layout.ranks[host * groups + group]
    )  # ps-lite's choice (kvstore_dist.h)


@given(st.integers(1, 10**7), st.integers(1, 12), st.integers(0, 100))
def test_a_large_parameter_is_cut_over_all_hosts(size, hosts, parameter):
    parts = made(2, hosts).parts(parameter, size, 1000)
    assert all(one[2] == other[1] for one, other in zip(parts, parts[1:]))
    if size < 1000 or hosts == 1:
        assert parts == [(parameter % hosts, None, None)]
    else:
        assert parts[0][1] == 0 and parts[-1][2] == size
        assert [host for host, _, _ in parts] == list(range(hosts))


@pytest.mark.slow
def test_an_impossible_layout_is_refused():
    with pytest.raises(ValueError, match="parameter key 107665 is outside 0 .. 107664"):
        made(2, 1).key(0, 107665, 0)
    with pytest.raises(ValueError, match="leave no key for a parameter"):
        made(MAX_KEY + 2, 1)
    with pytest.raises(ValueError, match="in place of the numbers 0 to 1"):
        Layout(2, 1, [0, 0])


def test_the_plan_names_the_homes_of_the_first_parameters():
    layout = Layout(2, 3, [3, 1, 5, 0, 2, 4], [2, 2, 0])
    assert [layout.parts(number, 10, 100) for number in range(6)] == [
        [(home, None, None)] for home in (2, 2, 0, 0, 1, 2)
    ]
    assert layout.parts(0, 99, 99) == Layout(2, 3, [3, 1, 5, 0, 2, 4]).parts(0, 99, 99)
    for number in range(6):
        for group in (0, 1):
            key = layout.key(group, number, layout.home(number))
            assert layout.split(key) == (group, number)
            assert key * 9973 % 6 == layout.ranks[layout.home(number) * 2 + group]


def test_a_placement_on_a_server_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="MXCLUSTER_PLACEMENT names server 2, but the job has 2"):
        Layout(1, 2, [0, 1], [0, 2])


def test_the_placement_is_read_from_the_environment():
    assert placement({}) == [] and placement({"MXCLUSTER_PLACEMENT": ""}) == []
    environ = {
        "MXCLUSTER_GROUPS": "0,1,1",
        "MXCLUSTER_SERVER_RANKS": "2,3,0,1",
        "MXCLUSTER_PLACEMENT": "1*2,0*1",
    }
    assert placement(environ) == [1, 1, 0]
    layout = from_environment(environ)
    assert (layout.groups, layout.hosts, layout.ranks) == (2, 2, [2, 3, 0, 1])
    assert [layout.home(number) for number in range(5)] == [1, 1, 0, 1, 0]


def test_a_layout_of_ranks_puts_a_key_on_the_named_rank():
    assert of_ranks({"DMLC_NUM_SERVER": "3"}) is None
    layout = of_ranks({"DMLC_NUM_SERVER": "3", "MXCLUSTER_PLACEMENT": "2*1,0*2,1*1"})
    keys = [layout.key(0, number, layout.home(number)) for number in range(5)]
    assert [key * 9973 % 3 for key in keys] == [2, 0, 0, 1, 1]
    assert [layout.split(key) for key in keys] == [(0, number) for number in range(5)]
