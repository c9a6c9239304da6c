import json

import pytest

from mxcluster.job.plan import table
from tests.inventories.cases import changed, load, plan_of


def plan(name="local", **of):
    return plan_of(changed(load("good/" + name), {"options": of}))


def test_the_table_of_a_grouped_job():
    text = table(plan("gpus"))
    assert (
        text
        == """\
job job-1
kv dist_gsync, 5 workers in 2 groups, 4 servers
program image_classification: network resnet50_v1, data imagenet (1281167 samples), \
batch size 32 per worker, 20 epochs
learning rate 0.05
batches per epoch: 4449 (worker 4), 8897 (workers 0-3)
samples repeated per epoch to fill the batches: 0 to 16 a worker

role       index  host   address:port   interface  GPUs  group  share
scheduler  0      head   10.1.0.1:9091  ib0        -     -      -
server     0      head   10.1.0.1:9092  ib0        -     fast   -
server     1      head   10.1.0.1:9093  ib0        -     slow   -
server     2      head   10.1.0.1:9094  ib0        -     fast   -
server     3      head   10.1.0.1:9095  ib0        -     slow   -
worker     0      fast1  10.1.0.2:9091  ib0        0,1   fast   0 0.222222
worker     1      fast1  10.1.0.2:9092  ib0        2,3   fast   0.222222 0.444444
worker     2      fast2  10.1.0.3:9091  ib0        1,2   fast   0.444444 0.666667
worker     3      fast2  10.1.0.3:9092  ib0        3     fast   0.666667 0.888889
worker     4      slow1  10.1.0.4:9091  ib0        0     slow   0.888889 1
"""
    )


def test_the_table_shows_what_differs_from_the_defaults():
    case = changed(
        load("good/gpus"),
        {
            "options": {"compression": "2bit", "bigarray_bound": "5000", "kv": "dist_async"},
            "hosts": {"fast1": {"gpu_speeds": "3,1,3,1"}, "fast2": {"gpu_speeds": "9,1,1,3"}},
        },
    )
    found = plan_of(case)
    lines = table(found).splitlines()
    assert lines[2] == "arrays of 5000 numbers or more are split over all servers (bigarray_bound)"
    assert (
        lines[5] == "workers send gradients with 2 bits for each number, threshold 2 (compression)"
    )
    assert lines[7] == "samples of a batch for each GPU: 24 + 8 (workers 0-1) (gpu_speeds)"
    loads = [process.work_load for process in found.processes if process.role == "worker"]
    assert loads == [[3, 1], [3, 1], [], [], []]


def test_the_table_shows_ports_without_a_firewall():
    """Only root can set the firewall; without a training user there is no root."""
    case = load("good/local")
    assert "ports:" not in table(plan_of(case))
    for host in ("node1", "node3"):
        case = changed(case, {"hosts": {host: {"mxcluster_user": ""}}})
    text = table(plan_of(case))
    assert (
        "\nports: open to every host that can reach node1, node3, because jobs run without "
        "root on these hosts" in text
    )
    alone = changed(case, {"options": {"kv": "local"}, "groups": {"workers": ["node1"]}})
    assert "ports:" not in table(plan_of(alone))  # one process, without a port


@pytest.mark.parametrize(
    "kv, expected",
    [
        ("dist_async", "batches per epoch: 1 (workers 0-1, 3), 2 (worker 2)"),
        ("dist_gsync", "batches per epoch: 1 (workers 0-1), 2 (workers 2-3)"),
        ("dist_ssync", "batches per epoch: 2"),
    ],
)
def test_batches_are_equal_within_a_waiting_set(kv, expected):
    case = changed(
        load("good/local"),
        {
            "options": {"kv": kv, "num_examples": "130", "data_allocator": "1"},
            "files": {"data_sharding": "0 0.2\n0.2 0.4\n0.4 0.8\n0.8 1\n"},
        },
    )
    assert expected in table(plan_of(case))


@pytest.mark.parametrize(
    "options, expected",
    [
        (
            {"kv": "dist_ssync", "lr": "0.4"},
            "learning rate 0.1 for every push: lr=0.4 divided by 4 workers",
        ),
        (
            {"kv": "dist_async", "lr_scale": "none"},
            "learning rate 0.05 for every push of each of the 4 workers (lr_scale=none)",
        ),
        ({"kv": "dist_gsync"}, "learning rate 0.05\n"),
    ],
)
def test_the_table_shows_the_learning_rate_that_the_workers_get(options, expected):
    made = plan(**options)
    assert expected in table(made)
    step = expected.split()[2]
    commands = [process.command for process in made.processes if process.role == "worker"]
    rates = {json.loads(command[-1]).get("lr", 0.05) for command in commands}
    assert rates == {float(step)}
    assert made.options.lr == float(options.get("lr", 0.05)), (
        "a resumed job starts from the given lr"
    )


def test_knobs_for_late_updates_without_a_good_effect_are_told():
    one = load("good/local")
    for host in one["hosts"].values():
        host.pop("worker_group", None)
    knobs = {"kv": "dist_gsync", "gsync_compensation": 0.04, "gsync_max_y": 4}
    alone = table(plan_of(changed(one, {"options": knobs})))
    assert "gsync_compensation=0.04, gsync_max_y=4: no effect with one group" in alone
    assert "no effect" not in table(plan_of(changed(one, {"options": {"kv": "dist_gsync"}})))
    assert "no effect" not in table(plan(**knobs)) and "drops most" not in table(plan(**knobs))
    low = table(plan(kv="dist_gsync", gsync_max_y=1))
    assert "drops most updates of equally fast groups, because Y is then near 2" in low
    assert "drops most" not in table(plan(kv="dist_gsync", gsync_max_y=2))
