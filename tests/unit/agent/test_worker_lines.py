"""The figures in the lines of scripts, in the forms of MXNet and of the knob `metrics`."""

import math

import pytest

from mxcluster.agent.worker_lines import MOST, WorkerLines
from mxcluster.model.events import Batch, Epoch, Metric


def figures(*lines):
    """Return [(class, fields without time and source)] of the events of `lines`."""
    found = WorkerLines()
    for line in lines:
        found.read(line)
    events = found.take()
    assert all(event.source == "lines" for event in events) and not found.take()
    return [
        (
            type(event),
            {
                name: value
                for name, value in vars(event).items()
                if value is not None and name not in ("time", "source")
            },
        )
        for event in events
    ]


@pytest.mark.parametrize("prefix", ["", "INFO:root:", "2026-11-27 08:00:00,123 [INFO] worker 0: "])
@pytest.mark.parametrize(
    "line, batch",
    [
        (
            "Epoch[3] Batch [40]\tSpeed: 5123.40 samples/sec\taccuracy=0.910000",
            {"epoch": 3, "batch": 40, "samples_per_s": 5123.4, "train_accuracy": 0.91},
        ),
        (
            "Epoch[3] Batch [20-40]\tSpeed: 5123.40 samples/sec\tcross-entropy=0.250000",
            {"epoch": 3, "batch": 40, "samples_per_s": 5123.4, "loss": 0.25},
        ),
        (
            "Epoch[0] Batch [0-20]\tSpeed: 51 samples/sec\taccuracy=0.5\tcross-entropy=1e-05",
            {"epoch": 0, "batch": 20, "samples_per_s": 51.0, "train_accuracy": 0.5, "loss": 1e-05},
        ),
        (
            "Iter[3] Batch [40]\tSpeed: 12.50 samples/sec",
            {"epoch": 3, "batch": 40, "samples_per_s": 12.5},
        ),
        (
            "Iter[3] Batch[40] Train-accuracy=0.910000",
            {"epoch": 3, "batch": 40, "train_accuracy": 0.91},
        ),
        ("Epoch[3] Train-accuracy=0.912000", {"epoch": 3, "train_accuracy": 0.912}),
        ("Epoch[3] Train-cross-entropy=0.300000", {"epoch": 3, "loss": 0.3}),
        (
            "[Epoch 3 Batch 40] Training: accuracy=0.91",
            {"epoch": 3, "batch": 40, "train_accuracy": 0.91},
        ),
        (
            "[Epoch 3] speed: 5123 samples/sec\ttime cost: 4.211000",
            {"epoch": 3, "samples_per_s": 5123.0},
        ),
    ],
)
def test_a_line_about_batches(prefix, line, batch):
    assert [fields for cls, fields in figures(prefix + line) if cls is Batch] == [batch]


@pytest.mark.parametrize(
    "lines, fields",
    [
        (
            ["Epoch[3] Time cost=4.211", "INFO:root:Epoch[3] Validation-accuracy=0.934000"],
            {"epoch": 3, "accuracy": 0.934, "seconds": 4.211},
        ),
        (
            ["Epoch[2] Time cost=4.2", "Epoch[3] Validation-accuracy=1"],
            {"epoch": 3, "accuracy": 1.0},
        ),
        (["[Epoch 3] validation: accuracy=0.934000"], {"epoch": 3, "accuracy": 0.934}),
    ],
)
def test_a_line_about_held_out_samples(lines, fields):
    assert figures(*lines) == [(Epoch, fields)]


def test_other_names_are_metrics():
    assert (
        figures(
            "Epoch[1] Validation-top_k_accuracy_5=0.99",
            "Epoch[1] Train-perplexity=120.5",
            "Epoch[1] Batch [20]\tSpeed: 10.0 samples/sec\tlr=0.1\tmse=2.5",
            "Epoch[1] Validation-accuracy=91.5",  # in percent: no accuracy from 0 to 1
        )[1:]
        == [
            (Metric, {"name": name, "value": value, "epoch": 1})
            for name, value in (
                ("validation top_k_accuracy_5", 0.99),
                ("training perplexity", 120.5),
                ("lr", 0.1),
                ("training mse", 2.5),
                ("validation accuracy", 91.5),
            )
        ]
    )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "accuracy=0.91",
        "Epoch 3: loss=0.5",
        "Epoch[3] Resetting Data Iterator",
        "Epoch[3] Train-accuracy=91%",
        "Epoch[3] Train-accuracy=1e999",
        "Epoch[3] Train-accuracy=-1e200",
        "Epoch[99999999999] Train-accuracy=0.5",
        "Epoch[3] Train-accuracy=" + "9" * 900,
        "Epoch[3] " + "a" * 980,
        "Epoch[3] Batch [" + "0-" * 490,
    ],
)
def test_a_line_without_a_figure(line):
    assert [one for one in figures(line) if one[1].get("value") != math.inf] == []


def test_a_loss_of_nan_stays():
    [(cls, fields)] = figures("Epoch[3] Train-cross-entropy=nan")
    assert cls is Batch and math.isnan(fields["loss"])


def test_the_mean_speed_and_the_latest_other_figures_of_an_epoch_count():
    lines = ["Epoch[0] Batch [%d]\tSpeed: %d.0 samples/sec" % (one, one) for one in (20, 40, 60)]
    assert figures(*lines, "Epoch[0] Train-loss=0.5") == [
        (Batch, {"epoch": 0, "batch": 60, "samples_per_s": 32.727, "loss": 0.5})
    ]
    many = ["Epoch[%d] Train-loss=0.5" % epoch for epoch in range(MOST + 50)]
    assert [fields["epoch"] for _, fields in figures(*many)] == list(range(50, MOST + 50))


def test_metrics_with_known_names_are_figures_of_mxcluster():
    found = WorkerLines()
    for name, value in (("epoch", 4), ("loss", 0.5), ("samples_per_s", 9.5), ("bleu", 30.0)):
        found.metric(name, value)
    found.metric("accuracy", 0.75, epoch=5)
    batch, epoch, metric = found.take()
    assert (batch.epoch, batch.loss, batch.samples_per_s) == (4, 0.5, 9.5)
    assert (epoch.epoch, epoch.accuracy) == (5, 0.75)
    assert (metric.name, metric.value, metric.epoch) == ("bleu", 30.0, 4)
