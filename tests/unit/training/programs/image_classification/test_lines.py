"""The lines of a worker's log about its share, with batches and with a deadline."""

import types

import pytest

from mxcluster.model.events import Balance
from mxcluster.training.programs.image_classification import lines
from mxcluster.training.programs.image_classification.shard import Work

SHARE = Work(begin=10, end=20, batches=2, repeated=6, updates=2.0)
CHANGE = Balance(epoch=3, workers=[0, 1], sizes=[8, 24], speeds=[10.04, 30.0])


def args(balance):
    return types.SimpleNamespace(balance=balance, network="mlp", data="digits")


@pytest.mark.parametrize("balance", ["none", "batch"])
def test_a_worker_with_batches_repeats_samples(balance):
    assert lines.start(args(balance), SHARE, 1, 8, 16) == (
        "worker 1 trains mlp on digits with images of 8 x 8 pixels. The share of this worker is "
        "samples 10 to 19. An epoch has 2 batches of 16 samples, with 6 repeated samples"
    )
    assert "every batch repeats samples" in lines.small_share(args(balance), SHARE, 1, 16)
    assert lines.small_share(args(balance), SHARE, 1, 10) == ""
    assert lines.change(args(balance), SHARE, CHANGE) == (
        "epoch 3: batch sizes 8/24 for speeds of 10.0/30.0 samples/s. This worker trains samples "
        "10 to 19, 6 repeated"
    )


def test_a_worker_with_a_deadline_has_planned_samples_and_repeats_none():
    assert lines.start(args("deadline"), SHARE, 1, 8, 16).endswith(
        "samples 10 to 19. An epoch has about 2 steps, each with 16 planned samples"
    )
    assert lines.small_share(args("deadline"), SHARE, 1, 16) == ""
    assert lines.change(args("deadline"), SHARE, CHANGE) == (
        "epoch 3: planned samples of a step 8/24 for speeds of 10.0/30.0 samples/s. This worker "
        "trains samples 10 to 19"
    )
