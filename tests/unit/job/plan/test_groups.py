import pytest

from mxcluster.job.plan import groups
from mxcluster.model.host_variables import of_hosts

LINES = ["b", "a", "a", "c"]


def labelled(**labels):
    return of_hosts("abc", {host: {"worker_group": label} for host, label in labels.items()})


def test_a_number_is_a_label():
    assert groups.from_labels(LINES, labelled(a=2, b=1, c="1")) == ([[0, 3], [1, 2]], ["1", "2"])


def test_groups_of_a_file_are_ordered_by_their_first_member():
    addresses = ["10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.3"]
    assert groups.from_file("10.0.0.1\n10.0.0.3 10.0.0.2\n", addresses, "groups") == (
        [[0, 3], [1, 2]],
        ["0", "1"],
    )


@pytest.mark.parametrize(
    "count, expected",
    [
        (4, ([[0, 3], [1, 2]], ["x", "y"])),
        (2, ([[0], [1]], ["x", "y"])),
        (1, ([[0]], ["x"])),
    ],
)
def test_groups_of_the_first_workers_only(count, expected):
    assert groups.first(([[0, 3], [1, 2]], ["x", "y"]), count) == expected
