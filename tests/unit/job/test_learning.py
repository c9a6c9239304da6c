"""Deciding from the workers' losses whether a job has learned."""

import math

import pytest

from mxcluster.job import learning, verdict_text
from mxcluster.model.events import Batch, End, Epoch
from mxcluster.model.job_knobs import Options
from mxcluster.model.verdict import Verdict
from tests.unit.job.test_verdict import DONE, PLAN, statuses
from tests.unit.statuses import compute

PROGRAM = Options(data="digits", lr=0.05)
LEARNING = [1.695, 1.638, 0.7, 0.913, 0.515, 0.163, 0.17, 0.135, 0.127, 0.139]
GUESS = math.log(10)


def events_of(losses):
    """Return the events of two workers with these losses, one per epoch."""
    return [
        Batch(role="worker", index=index, epoch=epoch, loss=loss)
        for epoch, loss in enumerate(losses)
        for index in (0, 1)
    ]


def judged(losses, accuracy=0.1, kv="dist_async", **options):
    plan = PLAN.replaced(kv=kv, options=PROGRAM.replaced(**options))
    end = End(role="worker", index=0, time=130.0, accuracy=accuracy, samples=10, seconds=1.0)
    return compute(plan, statuses(), events_of(losses) + [end] + DONE)


@pytest.mark.parametrize(
    "losses, accuracy",
    [([GUESS] * 20, 0.1), ([2.3, 2.4], 0.1)],
)
def test_a_job_that_learned_nothing_is_not_ok(losses, accuracy):
    found = judged(losses, accuracy)
    failure = found["first_failure"]
    assert not found["ok"] and (failure["name"], failure["host"]) == ("worker-0", "node1"), found
    assert failure["reason"].startswith("the job learned nothing: its loss was ")
    assert failure["reason"].endswith(
        ". Use another lr than 0.05, and a smaller lr if the loss oscillates"
    ), failure["reason"]
    assert "learned nothing" in "\n".join(verdict_text.text(Verdict.decode(found), "runs/j1"))


@pytest.mark.parametrize(
    "losses, accuracy",
    [(LEARNING, 0.97), (LEARNING, None), ([2.3 - 0.05 * epoch for epoch in range(20)], 0.2)],
)
def test_a_job_that_learned_is_ok(losses, accuracy):
    found = judged(losses, accuracy)
    assert found["ok"] and found["warnings"] == [], found


def test_the_remedy_names_the_option_of_the_job():
    assert judged([GUESS] * 5, lr_scale="none")["first_failure"]["reason"].endswith(
        "oscillates, or leave lr_scale=none out"
    )
    assert judged([GUESS] * 5, lr_scale="none", kv="dist_sync")["first_failure"]["reason"].endswith(
        "oscillates"
    )


@pytest.mark.parametrize("options", [{"model_load_epoch": 5}, {"script": "/home/me/train.py"}])
def test_a_resumed_job_and_a_script_get_only_a_warning(options):
    found = judged([GUESS] * 5, **options)
    assert (
        found["ok"] and len(found["warnings"]) == 1 and "learned nothing" in found["warnings"][0]
    ), found
    assert any(
        line.startswith("warning   the job learned nothing")
        for line in verdict_text.text(Verdict.decode(found), "runs/j1")
    )


def test_one_epoch_is_too_few_to_decide():
    assert judged([GUESS], 0.9)["warnings"] == []
    found = judged([GUESS], 0.12)
    assert found["ok"] and "close to a guess" in found["warnings"][0]


def test_another_failure_takes_precedence():
    plan = PLAN.replaced(options=PROGRAM)
    assert (
        "before its training was complete"
        in compute(plan, statuses(), events_of([GUESS] * 5))["first_failure"]["reason"]
    )


def test_a_batch_without_its_epoch_or_loss_does_not_count():
    events = events_of([2.0, 1.0]) + [Batch(epoch=1), Batch(loss=9.0), Epoch(epoch=1)]
    assert learning.by_epoch(events) == [2.0, 1.0]


def test_a_measurement_need_not_learn():
    assert not judged([GUESS] * 5)["ok"]
    found = judged([GUESS] * 5, measured=50)
    assert found["ok"] and found["warnings"] == []
