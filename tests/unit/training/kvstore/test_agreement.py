"""Agreement of the workers: the first one decides, and a different one is named."""

import pytest

from mxcluster.errors import BadInput
from mxcluster.model.server_messages import Report
from mxcluster.training.kvstore.agreement import Agreement


class SGD(object):
    def __init__(self, **values):
        self.__dict__.update(
            {"lr": 0.1, "rescale_grad": 0.5, "num_update": 0, "lr_mult": {}}, **values
        )


class Adam(SGD):
    pass


class Halved(object):
    def __init__(self, step):
        self.step, self.steps = step, [1, 2]


def report(names=(), number=1):
    return Report(names=list(names), number=number, optimizer=None)


def test_the_first_optimizer_is_used_and_equal_ones_are_not():
    agreement = Agreement()
    assert agreement.is_new("worker-1", report(), SGD())
    assert not agreement.is_new("worker-0", report(), SGD(num_update=5))
    assert agreement.is_new("worker-0", report(number=2), Adam())  # a second set_optimizer
    assert not agreement.is_new("worker-1", report(number=2), Adam())
    assert not agreement.is_new("worker-2", report(number=1), SGD(lr=7))  # late, and without effect


@pytest.mark.parametrize(
    "other, words",
    [
        (SGD(momentum=0.9), "has momentum=0.9, but the optimizer of worker-1 has None"),
        (SGD(lr_mult={"a": 1}), "has lr_mult={'a': 1}, but the optimizer of worker-1 has {}"),
        (
            SGD(lr_scheduler=Halved(5)),
            "has lr_scheduler.class='Halved', but the optimizer of worker-1 has None",
        ),
    ],
)
def test_another_optimizer_is_refused(other, words):
    agreement = Agreement()
    agreement.is_new("worker-1", report(), SGD())
    with pytest.raises(BadInput) as refused:
        agreement.is_new("worker-0", report(), other)
    assert words in str(refused.value)


def test_another_schedule_is_refused():
    agreement = Agreement()
    agreement.is_new("worker-1", report(), SGD(lr_scheduler=Halved(5)))
    assert not agreement.is_new("worker-0", report(), SGD(lr_scheduler=Halved(5)))
    late = Halved(5)
    late.steps = [1, 3]
    with pytest.raises(
        BadInput,
        match=r"has lr_scheduler.steps=\[1, 3\], but the optimizer of worker-1 has \[1, 2\]",
    ):
        agreement.is_new("worker-2", report(), SGD(lr_scheduler=late))


def test_another_order_of_keys_is_refused():
    agreement = Agreement()
    agreement.is_new("worker-1", report(["a", "b"]), SGD())
    assert not agreement.is_new("worker-0", report(["a"]), SGD())
    assert not agreement.is_new(
        "worker-1", report(["a", "b", "c"]), None
    )  # more keys, the same optimizer
    with pytest.raises(
        BadInput, match="key number 1 is 'c' on worker-0, but 'b' on worker-1: call init"
    ):
        agreement.is_new("worker-0", report(["a", "c"]), None)
