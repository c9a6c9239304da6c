import pytest

from mxcluster import cluster_files
from mxcluster.cluster_files import (
    batches_per_epoch,
    cut,
    parse_data_sharding,
    parse_groups,
    parse_hosts,
)
from mxcluster.errors import BadInput

HOSTS = ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3"]


def refused(function, *arguments):
    with pytest.raises(BadInput) as refusal:
        function(*arguments)
    return str(refusal.value)


# hosts


def test_hosts_with_comments_blank_lines_and_other_line_ends():
    text = "\ufeff# workers\r\n10.0.0.1\r\n\r\n\t10.0.0.2  # two of them\r10.0.0.2\n   \n10.0.0.3"
    assert parse_hosts(text) == HOSTS


# groups


def test_an_address_in_groups_stands_for_all_its_workers():
    assert parse_groups("10.0.0.3\t10.0.0.2\r\n# the rest\r\n10.0.0.1\r\n", HOSTS) == [
        [1, 2, 3],
        [0],
    ]


def test_groups_are_rendered_with_each_address_once():
    assert cluster_files.render_groups([[1, 2, 3], [0]], HOSTS) == "10.0.0.2 10.0.0.3\n10.0.0.1\n"


def test_groups_that_split_the_workers_of_a_host_are_refused():
    assert "10.0.0.2 are in different groups" in refused(
        cluster_files.render_groups, [[0, 1], [2, 3]], HOSTS
    )


def test_a_long_list_of_workers_is_cut_in_messages():
    hosts = ["10.0.0.%d" % number for number in range(100)]
    assert "10.0.0.7 and 92 more." in refused(parse_groups, " ".join(hosts) + "\nx", hosts)


# data_sharding


def test_shares_are_accepted_in_any_order():
    text = "0.25\t1e0 # the big one\r\n\r\n0 0.25\r\n"
    assert parse_data_sharding(text, 2) == [(0.25, 1.0), (0.0, 0.25)]


# samples and batches


def equal(workers):
    return [(index / workers, (index + 1) / workers) for index in range(workers)]


def test_cut_follows_the_order_of_the_shares():
    assert cut([(0.5, 1), (0, 0.25), (0.25, 0.5)], 8) == [(4, 8), (0, 2), (2, 4)]


@pytest.mark.parametrize(
    "waiting, batches, repeated",
    [
        ([[0], [1], [2]], [10, 9, 4], [0, 5, 1]),
        ([[0, 1, 2]], [10, 10, 10], [0, 15, 61]),
        ([[2, 1], [0]], [10, 9, 9], [0, 5, 51]),
    ],
)
def test_workers_of_a_waiting_set_run_the_same_number_of_batches(waiting, batches, repeated):
    assert batches_per_epoch([(0, 100), (100, 185), (185, 224)], 10, waiting) == (batches, repeated)


def test_cluster_files_as_a_command(tmp_path, capsys):
    for name, text in (
        ("hosts", "10.0.0.1\n10.0.0.2\n"),
        ("groups", "10.0.0.1 10.0.0.2\n"),
        ("bad", "10.0.0.9\n"),
    ):
        (tmp_path / name).write_text(text)
    hosts, groups, bad = (str(tmp_path / name) for name in ("hosts", "groups", "bad"))
    assert cluster_files.main(["hosts", hosts, hosts]) == 0
    assert cluster_files.main(["groups", groups, hosts]) == 0
    assert capsys.readouterr().err == ""
    assert cluster_files.main(["groups", bad, hosts]) == 1 and "10.0.0.9" in capsys.readouterr().err
    assert cluster_files.main(["data_sharding", groups, hosts]) == 1
    assert cluster_files.main(["hosts", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err
