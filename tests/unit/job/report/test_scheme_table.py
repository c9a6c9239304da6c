"""The table of profile.yml that compares the schemes, and the command for the best one."""

import shlex

import pytest

from mxcluster.cluster import predictions
from mxcluster.job.report import scheme_table
from mxcluster.model.job_knobs import Options
from mxcluster.model.knob import read
from tests.unit.cluster.profiles import completed, measured
from tests.unit.job.report.fake_run import make_plan

UNEQUAL = {"a": 100, "b": 100, "c": 50, "d": 25}


def plan_with(groups=1, **options):
    """Return the plan of a job that measures with `options`."""
    plan = make_plan(groups=groups, kv="dist_async")
    return plan.replaced(options=plan.options.replaced(**options))


def lines(speeds, inventory="", groups=1, **options):
    plan = plan_with(groups, **options)
    given = dict(measured(speeds), batch_size=plan.options.batch_size)
    return scheme_table.lines(completed(given), plan, inventory)


def test_the_table_has_the_speed_and_the_part_of_the_limit_of_each_scheme():
    found = lines(UNEQUAL)
    assert found[0] == ("predicted speed of each scheme while all its workers train, not measured:")
    cells = {line.split("kv=")[1]: line for line in found if "  kv=" in line}
    row = cells["dist_gsync grouping=auto data_allocator=1"].split()
    assert row[:6] == ["GSP", "274", "100", "%", "by", "3"]
    assert "  199        73 %  " in cells["dist_sync without_workers=c,d"]
    marked = [line for line in found if line.startswith("use  ")]
    assert marked[0].split()[1:3] == ["load-balanced", "BSP"] and len(marked) == 2
    assert "the limit is 275 samples/s, the sum of the speeds alone" in found
    assert "samples/s are not accuracy: with stale gradients a training needs more samples" in found


@pytest.mark.parametrize(
    "speeds, more, command",
    [
        (UNEQUAL, {}, "train.yml -e kv=dist_sync -e balance=batch"),
        (
            {"a": 100, "b": 99, "c": 3},
            {"batch_size": 4, "network": "lenet"},
            "train.yml -e network=lenet -e batch_size=4 -e kv=dist_sync -e without_workers=c",
        ),
    ],
)
def test_the_last_line_is_the_command(speeds, more, command):
    assert lines(speeds, **more)[-1] == "use       ansible-playbook " + command
    named = lines(speeds, "/my clusters/mine", **more)[-1]
    assert named == "use       ansible-playbook -i '/my clusters/mine' " + command


def test_the_command_keeps_the_machines_of_the_measurement():
    options = {"without": ["e", "f"], "num_workers": 3, "num_servers": 2, "gpus": [0, 1]}
    last = lines({"a": 100, "b": 99, "c": 3}, batch_size=4, hosts_file="my hosts", **options)[-1]
    words = shlex.split(last)[3:]
    assert words[::2] == ["-e"] * len(words[1::2])
    assert dict(word.split("=", 1) for word in words[1::2]) == {
        "batch_size": "4",
        "without": "e,f",
        "num_workers": "2",  # c gets no worker
        "num_servers": "2",
        "hosts_file": "'my hosts'",  # which Ansible divides into words once more
        "gpus": "0,1",
        "kv": "dist_sync",
        "without_workers": "c",
    }
    assert lines(UNEQUAL, gpus=[])[-1].split("train.yml -e ")[1].startswith("gpus= -e kv=")


def test_train_yml_accepts_the_command_of_every_row():
    profile = completed(measured(UNEQUAL))
    for one in predictions.predict(profile):
        words = shlex.split(scheme_table.command(one, plan_with()))
        given = dict(word.split("=", 1) for word in words[3::2])
        assert words[2::2] == ["-e"] * len(given) and read(Options, given)


def test_a_long_list_of_hosts_is_whole_in_the_command_only():
    speeds = {"node%d" % number: 100 if number < 2 else 0.1 for number in range(60)}
    found = lines(speeds, batch_size=1)
    (row,) = [line for line in found if "BSP, the 2 fastest workers" in line]
    assert row.endswith("...") and "node59" not in row
    assert found[-1].endswith(",node59")


def test_groups_of_the_inventory_other_than_those_of_the_profile_are_named():
    words = "the inventory has other groups (worker_group), which dist_gsync prefers"
    assert not [line for line in lines(UNEQUAL) if words in line]
    # make_plan has the groups [0, 1] and [2, 3].
    assert [line for line in lines(UNEQUAL, groups=2) if words in line]
    alike = {"a": 100, "b": 100, "c": 50, "d": 50}
    assert not [line for line in lines(alike, groups=2) if words in line]


def test_one_worker_has_no_table():
    assert lines({"a": 100}) == []
