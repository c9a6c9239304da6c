"""What workers with a common deadline know of each other: T, shards, small batches, places."""

import pytest

from mxcluster import deadline
from mxcluster.deadline import Walk
from mxcluster.model.checkpoint import MOST_IN_PROGRESS, Progress
from mxcluster.training.programs.image_classification import members, shard
from mxcluster.training.programs.image_classification.sizes import Sizes


def of_worker(index, workers=4, kv="dist_sync", groups="", sizes=None, samples=400, **more):
    environ = {"MXCLUSTER_INDEX": str(index), "MXCLUSTER_GROUPS": groups}
    shards = shard.Shards(environ, kv, workers, 0, samples, 0)
    sizes = sizes or [16] * workers
    return members.Members(shards, Sizes(sizes, [1] * workers, [99] * workers), 16, **more)


def of_all(workers=4, **more):
    return [of_worker(index, workers, **more) for index in range(workers)]


def hear(those, counts, per_sample):
    for one in those:
        one.heard(
            [counts[member] for member in one.members],
            [per_sample[member] for member in one.members],
        )


def test_all_members_have_the_same_deadline_bit_by_bit():
    those = of_all()
    hear(those, [16] * 4, [0.1, 0.2, 0.3, 0.7])
    assert len({one.state for one in those}) == 1
    assert those[0].state.seconds == pytest.approx(64 / (10 + 5 + 10 / 3 + 10 / 7))
    assert len({(tuple(one.walks), tuple(one.small)) for one in those}) == 1


def test_shards_are_cut_anew_outside_the_dead_band_and_begin_new_passes():
    those = of_all()
    assert those[0].lengths == [100] * 4 and those[0].of_epoch == 400 and those[0].of_step == 64
    hear(those, [16, 100, 120, 250], [0.1, 0.1, 0.1, 0.103])
    assert those[0].walks == [Walk(0, 16), Walk(1, 0), Walk(1, 20), Walk(2, 50)]
    assert not any(one.adapt() for one in those), "the speeds differ by less than 5 %"
    for _ in range(40):
        hear(those, [16] * 4, [0.1, 0.1, 0.1, 0.4])
    walks = those[0].walks
    assert all(one.adapt() for one in those)
    assert those[0].own_sizes == those[3].sizes == [20, 20, 19, 5]
    assert those[0].lengths == [125, 125, 119, 31]
    assert those[0].walks == [Walk(walk.number + 1, 0) for walk in walks]
    assert those[3].small == deadline.small_sizes([20, 20, 19, 5], [1] * 4, [99] * 4)
    event = those[3].event(7)
    assert (event.epoch, event.workers, event.sizes) == (7, [0, 1, 2, 3], [20, 20, 19, 5])
    assert event.small == those[3].small and event.deadline_s == those[3].state.seconds


def test_sizes_that_turn_back_and_round_to_themselves_begin_no_new_passes():
    (one, _) = of_all(2)
    for _ in range(40):
        one.heard([16, 16], [0.1, 0.12])
    assert one.adapt() and one.own_sizes == [17, 15]
    for _ in range(40):
        one.heard([16, 16], [0.1, 0.1])
    walks, lengths = list(one.walks), list(one.lengths)
    # Half of the way back, 16.5 and 15.5 samples, rounds to the sizes before.
    assert not one.adapt() and one.own_sizes == [17, 15]
    assert one.walks == walks and one.lengths == lengths
    assert any(walk.position for walk in walks)


def test_small_batches_fit_the_first_speeds_and_shards_wait_for_the_epoch():
    those = of_all(2, sizes=[160, 160])
    assert those[0].small == [10, 10] and those[0].planned_batches == 16
    those = [of_worker(index, 2, sizes=[16, 16]) for index in (0, 1)]
    assert those[0].small == [1, 1]
    wide = of_all(2, sizes=[16, 16])
    hear(wide, [16, 16], [0.1, 0.1])
    assert not wide[0].fit_small()
    shards = shard.Shards({"MXCLUSTER_INDEX": "0"}, "dist_sync", 2, 0, 400, 0)
    one = members.Members(shards, Sizes([160, 160], [1, 1], [99, 99]), 160)
    one.heard([160, 160], [0.1, 0.3])
    assert one.fit_small() and one.small == [15, 5]
    assert one.lengths == [200, 200] and one.sizes == [160, 160], "shards and plan stay"
    assert one.walks == [Walk(0, 160), Walk(0, 160)]


def test_members_of_a_group_know_their_group_only():
    those = of_all(kv="dist_gsync", groups="0,1,0,1")
    assert [one.members for one in those] == [[0, 2], [1, 3]] * 2
    assert those[1].of_step == 32 and those[1].of_epoch == 200 and those[3].place == 1
    hear(those, [16, 8, 24, 32], [0.1, 0.2, 0.1, 0.05])
    assert those[0].state == those[2].state != those[1].state == those[3].state
    assert those[1].state.seconds == pytest.approx(32 / 25)
    assert all(one.adapt() for one in (those[1], those[3])) and not those[0].adapt()
    assert those[1].sizes == [16, 6, 16, 26] and those[1].lengths == [38, 162]
    assert all(one.progress() is None for one in those), "worker 0 knows its group only"


def restored(progress, **more):
    return of_worker(0, progress=progress, **more)


def test_a_checkpoint_has_the_deadline_the_speeds_and_the_places():
    one = of_worker(0)
    hear([one], [90, 16, 16, 16], [0.1, 0.1, 0.2, 0.3])
    hear([one], [20, 16, 16, 16], [0.1, 0.1, 0.2, 0.3])
    progress = Progress.decode(one.progress().encode())
    again = restored(progress)
    assert (
        again.state == one.state and again.walks == one.walks == [Walk(1, 10)] + [Walk(0, 32)] * 3
    )
    # Other shards begin new passes, and the speeds stay.
    other = restored(progress, samples=404)
    assert other.state == one.state and other.walks == [Walk(2, 0)] + [Walk(1, 0)] * 3
    # Another number of workers, or of workers that wait for each other, starts afresh.
    for fresh in (
        restored(progress, workers=5),
        restored(progress, kv="dist_gsync", groups="0,1,0,1"),
    ):
        assert fresh.state == deadline.start(len(fresh.members))
        assert fresh.walks == [Walk(0, 0)] * len(fresh.members)


def test_a_checkpoint_of_very_many_workers_has_no_places():
    assert of_worker(0, workers=MOST_IN_PROGRESS, samples=1000).progress()
    assert of_worker(0, workers=MOST_IN_PROGRESS + 1, samples=1000).progress() is None
