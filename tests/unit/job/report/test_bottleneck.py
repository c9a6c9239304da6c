"""The sentence about the bottleneck: each cause with its figures, and silence without a cause."""

import pytest

from mxcluster.job.report import bottleneck
from mxcluster.job.report.bottleneck import Load, Loads, Traffic
from mxcluster.model.events import Batch, NodeUsage, Usage
from tests.unit.job.report import fake_run


def loads(workers=(0.4, 0.45, 0.4), server=0.3, data=0.0, network=0.1, together=True):
    """Return the loads of workers with these busy parts, of a server, and of its 10 Gbit/s."""
    names = ["worker-%d" % index for index in range(len(workers))]
    return Loads(
        workers=[
            Load(name, "node%d" % place, busy, data if place == 1 else 0.0)
            for place, (name, busy) in enumerate(zip(names, workers))
        ],
        together=[names] if together else [],
        servers=[Load("server-0", "node7", 0.1), Load("server-1", "node8", server)],
        traffic={"node7": Traffic(1e8, 1.25e9), "node8": Traffic(network * 1.25e9, 1.25e9)},
    )


CAUSES = {
    "the CPU of server-1 on node8: its busiest thread was busy 93 % of the time, and the workers "
    "computed 42 %": {"server": 0.93},
    "the network of node8, which has a server: 1125.0 MB/s are 90 % of its link, and the workers "
    "computed 42 %": {"network": 0.9},
    "the straggler worker-2 on node2: it computed 97 % of the time, and the workers that wait for "
    "it at most 45 %": {"workers": (0.4, 0.45, 0.97)},
    "the training data: worker-1 on node1 waited 45 % of the time for its samples": {"data": 0.45},
}


@pytest.mark.parametrize("text", CAUSES)
def test_each_cause_is_named_with_its_figures(text):
    assert bottleneck.sentence(loads(**CAUSES[text])) == text


@pytest.mark.parametrize(
    "more",
    [
        {},  # the workers idle, and nothing is at its limit
        {"workers": (0.9, 0.95, 0.9), "server": 0.95, "network": 0.95},  # the workers compute
        {"workers": (0.4, 0.7, 0.97)},  # two slow workers
        {"workers": (0.4, 0.45, 0.97), "together": False},  # nobody waits for the slow worker
        {"workers": (None, None, None), "server": 0.95},  # not measured
        {"workers": (0.9, None, 0.4)},  # one is not measured: it may be as slow
        {"workers": (0.2,), "server": None},
        {"workers": ()},
    ],
)
def test_no_cause_stands_out(more):
    assert bottleneck.sentence(loads(**more)) is None


def test_unknown_links_name_no_network():
    found = loads(network=0.9)._replace(traffic={}, servers=[])
    assert bottleneck.sentence(found) is None


def seconds(plan, busy, start=100, end=120, **node):
    """Return the events of meters and workers from `start` to `end`: {process: busy} each."""
    found = []
    for process in plan.processes:
        who = {"role": process.role, "index": process.index, "host": process.host}
        part = busy.get(process.name, busy[process.role])
        # Before the training, all processes import MXNet.
        found += [Usage(time=float(t), busy=1.0, **who) for t in range(start - 20, start)]
        found += [Usage(time=float(t), busy=part, **who) for t in range(start, end)]
        if process.role == "worker":
            found += [Batch(time=float(t), samples_per_s=1.0, **who) for t in (start, end)]
    found += [
        NodeUsage(time=float(t), host=host, **node) for host in plan.nodes for t in range(80, end)
    ]
    return sorted(found, key=lambda event: event.time)


def test_only_the_time_of_the_training_counts():
    plan = fake_run.make_plan(kv="dist_sync", groups=1)
    parts = {"scheduler": 0.0, "server": 0.2, "worker": 0.5}
    assert bottleneck.find(plan, seconds(plan, parts)) is None
    text = bottleneck.find(plan, seconds(plan, dict(parts, **{"server-1": 0.9})))
    assert text.startswith("the CPU of server-1 on node2: its busiest thread was busy 90 %")
    text = bottleneck.find(plan, seconds(plan, dict(parts, **{"worker-3": 0.96})))
    assert text.startswith("the straggler worker-3 on node2: it computed 96 %")
    text = bottleneck.find(plan, seconds(plan, parts, sent=1e8, received=1e6, link=1.25e8))
    assert text.startswith("the network of node1, which has a server: 100.0 MB/s are 80 %")


def test_a_short_training_has_no_bottleneck():
    plan = fake_run.make_plan(kv="dist_sync", groups=1)
    parts = {"scheduler": 0.0, "server": 0.95, "worker": 0.4}
    assert bottleneck.find(plan, seconds(plan, parts, end=102)) is None
    assert bottleneck.find(plan, seconds(plan, parts, end=110)) is not None
    assert bottleneck.find(plan, []) is None


def test_a_worker_with_gpus_is_as_busy_as_its_gpus():
    """Its threads spin while they wait for the GPU."""
    plan = fake_run.make_plan(kv="dist_sync", groups=1)
    plan = plan.replaced(
        processes=[
            one.replaced(gpus=[one.index % 2]) if one.role == "worker" else one
            for one in plan.processes
        ]
    )
    parts = {"scheduler": 0.0, "server": 0.95, "worker": 1.0}
    found = bottleneck.find(plan, seconds(plan, parts, gpus={"0": 0.3, "1": 0.4}))
    assert found.endswith("and the workers computed 35 %")
    assert bottleneck.find(plan, seconds(plan, parts)) is None, "the GPUs are not measured"
