"""Host variables: the values that people write, and the one table of their names."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.model.host_variables import PLAN, SSH, VARIABLES, HostVariables, of_host, of_hosts


def test_values_of_the_inventory_get_their_types():
    given = {
        "node_address": " 10.0.0.5 ",
        "worker_group": 7,
        "worker_share": "2.5",
        "workers_per_host": "3",
        "gpus": "0,1",
        "gpu_speeds": [3, "1"],
        "ssh_mesh_from": "192.0.2.7",
        "node_host_key": ["ssh-rsa A c@c", ""],
        "ansible_port": "",
        "mxcluster_user": "",
        "slowdown": None,
    }
    assert of_host("a", given) == HostVariables(
        node_address="10.0.0.5",
        worker_group="7",
        worker_share=2.5,
        workers_per_host=3,
        gpus=[0, 1],
        gpu_speeds=[3.0, 1.0],
        ssh_mesh_from=["192.0.2.7"],
        node_host_key=["ssh-rsa A c@c"],
        mxcluster_user="",
    )
    assert of_host("a", {}) == HostVariables() and HostVariables().weight == 1.0
    assert HostVariables().gpus == "auto" and of_host("a", {"gpus": ""}).gpus == []


@pytest.mark.parametrize(
    "name, values, words",
    [
        ("workers_per_host", ["two", 0, -1, 257, 1.5, True], "a whole number from 1 to 256"),
        ("servers_per_host", [10**30, "9" * 30], "exclude the host, remove .* the group servers"),
        ("worker_share", [0, -1, "0", "nan", "inf", "x", "", True, [1]], "a weight from"),
        ("worker_group", [True, "a\nb", "x" * 101, ["a"]], "put words such as yes and no in"),
        ("worker_batch_max", [-1, "all"], "samples from 0 to 1000000"),
        ("slowdown", [0.5, 1001, "slow", float("nan")], "a factor from 1 .* to 1000"),
        ("slowdown_changes", ["0.5", [1, 1001], "slow", [1] * 101], "at most 100 factors from 1"),
        ("slowdown_every", [0, -1, "x", 86401], "a number of seconds from 0.1 to 86400"),
        ("gpus", ["x", [0, 0], [-1], 1024, True], r"a list of GPU numbers from 0 to 1023"),
        ("gpu_speeds", ["3,1,0,1", "3,-1", "fast", [1, True], [float("nan")], 1e300], "from 0.0"),
        ("node_address", [True, ["10.0.0.5"], "a\0b", "x" * 40000], "a text or a number"),
        ("ssh_mesh_from", [{"a": 1}, [["x"]], ["x"] * 101], "at most 100 texts"),
        ("ansible_port", ["{{ port }}", "ssh", "²", 0, 65536, True, 22.5, [22]], "from 1 to 65535"),
    ],
)
def test_a_wrong_value_is_refused_with_its_host_and_what_is_allowed(name, values, words):
    for value in values:
        with pytest.raises(BadInput, match="^node2: %s=.* is refused: .*%s" % (name, words)):
            of_host("node2", {name: value})


def test_an_unknown_name_has_the_nearest_name():
    with pytest.raises(BadInput, match="node2: worker_shares=.*did you mean 'worker_share'"):
        of_host("node2", {"worker_shares": 2})


def test_the_faults_of_all_hosts_are_listed_at_once():
    with pytest.raises(BadInput) as refusal:
        of_hosts("abc", {"b": {"workers_per_host": "x"}, "c": {"workers_per_host": 0}})
    assert [line.split("=")[0] for line in str(refusal.value).splitlines()] == [
        "b: workers_per_host",
        "c: workers_per_host",
    ]


@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_has_a_reader(name):
    variable = VARIABLES[name]
    assert set(variable.readers) <= {PLAN, SSH} and variable.readers
    assert getattr(HostVariables(), name) == variable.default
