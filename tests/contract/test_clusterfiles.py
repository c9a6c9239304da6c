"""Rendered files parse to the same data: parse(render(x)) == x for all three cluster files."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxcluster import cluster_files
from mxcluster.job.plan import shares as plan_shares

ADDRESSES = st.integers(1, 2**32 - 2).map(
    lambda number: ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
)
HOSTS = st.lists(ADDRESSES, min_size=1, max_size=8, unique=True).flatmap(
    lambda pool: st.lists(st.sampled_from(pool), min_size=1, max_size=12)
)
BOUNDARIES = st.lists(st.floats(0, 1, exclude_min=True, exclude_max=True), max_size=10, unique=True)
BLANKS = st.sampled_from(["\n", "\r\n", "\t\n", "# comment\n", "   # 10.0.0.1\r\n"])


@st.composite
def shares(draw):
    cuts = [0.0] + sorted(draw(BOUNDARIES)) + [1.0]
    return draw(st.permutations(list(zip(cuts, cuts[1:]))))


@st.composite
def hosts_and_groups(draw):
    """Draw hosts and groups of their workers; all workers of a host are in one group."""
    hosts = draw(HOSTS)
    by_group = {}
    for address in sorted(set(hosts)):
        members = [index for index, other in enumerate(hosts) if other == address]
        by_group.setdefault(draw(st.integers(0, 3)), []).extend(members)
    return hosts, draw(st.permutations([sorted(members) for members in by_group.values()]))


@pytest.mark.slow
@given(HOSTS)
def test_hosts(hosts):
    assert cluster_files.parse_hosts(cluster_files.render_hosts(hosts)) == hosts


@pytest.mark.slow
@given(hosts_and_groups())
def test_groups(case):
    hosts, groups = case
    assert cluster_files.parse_groups(cluster_files.render_groups(groups, hosts), hosts) == groups


@pytest.mark.slow
@given(shares())
def test_data_sharding(parts):
    assert (
        cluster_files.parse_data_sharding(cluster_files.render_data_sharding(parts), len(parts))
        == parts
    )


@pytest.mark.slow
@given(HOSTS, st.lists(BLANKS, min_size=13, max_size=13))
def test_blank_lines_and_comments_change_nothing(hosts, blanks):
    text = "".join(
        blank + line
        for blank, line in zip(blanks, cluster_files.render_hosts(hosts).splitlines(True))
    )
    assert cluster_files.parse_hosts(text) == hosts


@pytest.mark.slow
@given(shares(), st.integers(11, 10**7))
def test_cut_gives_every_sample_to_exactly_one_worker(parts, samples):
    try:
        ranges = cluster_files.cut(parts, samples)
    except cluster_files.BadInput:  # a share too small for a sample
        assert min(cluster_files.length(share) * samples for share in parts) < 1
        return
    ordered = sorted(ranges)
    assert ordered[0][0] == 0 and ordered[-1][1] == samples
    assert all(left[1] == right[0] for left, right in zip(ordered, ordered[1:]))
    for share, (first, last) in zip(parts, ranges):
        assert abs(cluster_files.length(share) * samples - (last - first)) < 1
    assert sorted(range(len(parts)), key=lambda i: ranges[i]) == sorted(
        range(len(parts)), key=lambda i: parts[i]
    )


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=50))
def test_shares_by_weight_tile_and_are_proportional(weights):
    parts = plan_shares.proportional(weights)
    assert (
        cluster_files.parse_data_sharding(cluster_files.render_data_sharding(parts), len(weights))
        == parts
    )
    for (begin, end), weight in zip(parts, weights):
        assert abs((end - begin) - weight / sum(weights)) < 1e-12


def exact(share):
    """Return the exact length of a share, whose ends are the decimal numbers in the file."""
    begin, end = share
    return Fraction(repr(end)) - Fraction(repr(begin))


@pytest.mark.slow
@given(shares(), st.data())
def test_the_first_shares_are_renormalised(parts, data):
    count = data.draw(st.integers(1, len(parts)))
    kept = parts[:count]
    total = sum(map(exact, kept))
    try:
        result = plan_shares.from_file(
            cluster_files.render_data_sharding(parts), len(parts), count, "shares"
        )
    except cluster_files.BadInput:  # two ends are the same float
        assert min(end - begin for begin, end in kept) < 1e-15
        return
    cluster_files.check_data_sharding(result, count)
    for (begin, end), (old_begin, old_end) in zip(result, kept):
        assert abs((end - begin) - float(exact((old_begin, old_end)) / total)) < 1e-12
