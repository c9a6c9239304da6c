"""The clock of the batches, with a simulated network and simulated time."""

import types

import pytest

from mxcluster.model.events import Measured, Waits
from mxcluster.node.quota import Use
from mxcluster.training.programs.image_classification import meter


class World:
    """Time, and a network whose arrays take time to arrive."""

    def __init__(self):
        self.now = 100.0
        self.waited = []

    def clock(self):
        return self.now

    def array(self, name, seconds):
        def wait_to_read():
            self.waited.append(name)
            self.now += seconds

        return types.SimpleNamespace(wait_to_read=wait_to_read)

    def module(self, weights=0.0, gradients=0.0):
        return types.SimpleNamespace(
            _exec_group=types.SimpleNamespace(
                param_arrays=[[self.array("weight", weights)]],
                grad_arrays=[[self.array("gradient", gradients), None], None],
            ),
            get_outputs=lambda: [self.array("output", 0.0)],
        )

    def train(self, found, batches, forward=1.0, update=0.0):
        for _ in range(batches):
            found.wait_for_weights()
            self.now += forward
            found.wait_for_gradients()
            self.now += update
            found.updated()
            found.end_of_batch(32)


def test_batches_after_the_warm_up_are_measured():
    world = World()
    found = meter.Meter(world.module(), warm_up=2, measured=3, clock=world.clock)
    found.begin()
    world.train(found, 2, forward=9.0)
    assert not found.is_complete and found.reports() == []
    world.train(found, 1, forward=1.0)
    world.now += 50  # validation, between two epochs
    found.begin()
    world.train(found, 1, forward=2.0)
    assert not found.is_complete
    world.train(found, 1, forward=3.0)
    assert found.is_complete and world.waited == [], "it waits for nothing of its own"
    (event,) = found.reports()
    assert isinstance(event, Measured) and event.warm_up == 2 and event.batches == 3
    assert event.seconds == pytest.approx(6) and event.median_s == pytest.approx(2)
    assert event.p10_s == pytest.approx(1.2) and event.p90_s == pytest.approx(2.8)
    assert event.samples_per_s == pytest.approx(16) and event.batch_size == 32


def test_nothing_is_measured_by_default():
    world = World()
    found = meter.Meter(world.module(), clock=world.clock)
    found.begin()
    world.train(found, 20)
    assert not found.is_complete and found.reports() == [] and world.waited == []


def test_a_worker_waits_for_weights_and_in_its_store():
    """The forward pass and the gradients are its own work."""
    world = World()
    module = world.module(weights=0.5, gradients=2.0)
    found = meter.Meter(module, waits=True, clock=world.clock)
    found.begin()
    world.train(found, 4, forward=1.0, update=0.25)
    (event,) = found.reports()
    assert isinstance(event, Waits)
    assert (event.seconds, event.waited_s) == (pytest.approx(4 * 3.75), pytest.approx(4 * 0.75))
    assert world.waited == ["weight", "output", "gradient"] * 4


class Group:
    """A control group that is stopped for half of the time from `begin` on."""

    def __init__(self, world, begin):
        self.world, self.begin = world, begin

    def use(self):
        return Use(cpu=0.0, throttled=max(0.0, self.world.now - self.begin) / 2)


def test_the_parts_of_a_step_add_up_to_its_time():
    world = World()
    module = world.module(weights=0.5, gradients=2.0)
    found = meter.Meter(module, waits=True, clock=world.clock, limit=Group(world, 109))
    found.begin()
    world.now += 7.0  # the first batch is read
    world.train(found, 1, forward=1.0, update=0.25)  # It ends at 110.75.
    first = found.step_times(32)
    assert (first.steps, first.samples, first.data) == (1, 32, 7.0)
    # The passes take from 107.5 to 110.5, the update until 110.75.
    assert (first.compute, first.push_pull) == (pytest.approx(2.25), pytest.approx(0.625))
    assert first.quota == pytest.approx(1.75 / 2)
    world.train(found, 1, forward=1.0, update=0.25)
    last = found.step_times(64)
    parts = {name: getattr(last, name) - getattr(first, name) for name in meter.PARTS}
    assert sum(parts.values()) == pytest.approx(3.75) and last.steps == 2
    assert parts["quota"] == pytest.approx(3.75 / 2) and parts["compute"] == pytest.approx(1.5)
    assert parts["remainder"] == parts["exchange"] == 0


def test_a_group_with_many_cpus_is_not_stopped_longer_than_a_part_lasts():
    world = World()
    group = types.SimpleNamespace(use=lambda: Use(cpu=0.0, throttled=4 * world.now))
    found = meter.Meter(world.module(), waits=True, clock=world.clock, limit=group)
    found.begin()
    world.train(found, 1, forward=2.0)
    assert (found.step_times(32).quota, found.step_times(32).compute) == (2.0, 0.0)


def test_batches_of_other_sizes_count_with_their_samples():
    world = World()
    found = meter.Meter(world.module(), warm_up=1, measured=2, clock=world.clock)
    found.begin()
    for samples in (32, 32, 48):
        world.now += 2.0
        found.end_of_batch(samples)
    (event,) = found.reports()
    assert event.samples_per_s == pytest.approx(80 / 4) and event.batch_size == 40, "the mean"


def test_the_read_of_a_batch_is_no_wait_for_weights():
    world = World()
    found = meter.Meter(world.module(weights=0.5), waits=True, clock=world.clock)
    found.begin()
    world.now += 7.0  # the first batch is read
    world.train(found, 1)
    (event,) = found.reports()
    assert (event.seconds, event.waited_s) == (8.5, 0.5)


@pytest.mark.parametrize(
    "text,wanted",
    [
        ("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nprocessor\t: 1\n", ("A CPU @ 2 GHz", 2)),
        ("processor : 0\nCPU part : 0xd0c\n", ("", 1)),
        (None, ("", 0)),
    ],
)
def test_the_name_and_cores_of_the_cpu(tmp_path, text, wanted):
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    assert meter.cpu(str(path)) == wanted


def test_a_worker_waits_for_its_samples():
    world = World()

    def read():
        for seconds in (7.0, 0.5, 0.0):
            world.now += seconds
            yield seconds

    found = meter.Meter(world.module(), clock=world.clock)
    for _ in found.timed(read()):
        world.train(found, 1)
    assert found.data_waited == 7.5, "the training of a batch is no wait"
