"""The verdict on GPUs: each failure with its remedy, and the checks that did not run."""

import copy

import pytest

from mxcluster.cluster import verify
from mxcluster.cluster.verify import gpus

WANTED = {
    "version": "9.2",
    "release": "9.2.148",
    "driver": "396.37",
    "folder": "/usr/local/cuda-9.2",
    "cudnn": "7.6.5.32",
    "gpus": 2,
}
WELL = {
    "wanted": WANTED,
    "listed": 2,
    "driver": "470.256.02",
    "nouveau": False,
    "nvcc": "9.2.148",
    "device_query": "Result = PASS",
    "cudnn": "7.6.5",
    "unresolved": [],
    "computes": {"0": None, "1": None},
}


def judged(**changes):
    """Return {check: [(result, why), ...]} of two nodes, the second one with `changes`."""
    second = dict(copy.deepcopy(WELL), **changes)
    found = {}
    for line in gpus.judge({"a": WELL, "b": second}, verify.line, verify.skipped):
        found.setdefault(line["check"], []).append((line["result"], line["why"]))
    return found


def test_all_checks_pass():
    lines = judged()
    assert len(lines) == 7 and all(line == [("ok", [])] for line in lines.values())


def test_no_lines_without_gpus():
    assert gpus.judge({}, verify.line, verify.skipped) == []


@pytest.mark.parametrize(
    "changes, check, says",
    [
        (
            {"driver": "390.87"},
            "a driver that CUDA works with",
            "b: driver 390.87 is older than 396.37, which CUDA 9.2 needs",
        ),
        (
            {"listed": 1},
            "a driver that CUDA works with",
            "b: nvidia-smi shows 1 GPUs, but the PCI bus has 2",
        ),
        ({"nouveau": True}, "no nouveau", "b: the driver nouveau is loaded: restart the node"),
        ({"nvcc": "9.0.176"}, "CUDA's compiler", "b: nvcc has version 9.0.176, not 9.2.148"),
        (
            {"device_query": "Result = FAIL"},
            "NVIDIA's deviceQuery",
            "b: deviceQuery did not pass (Result = FAIL)",
        ),
        (
            {"unresolved": ["libcudart.so.9.2"]},
            "the libraries that MXNet needs",
            "b: libmxnet.so needs libcudart.so.9.2, which the",
        ),
        ({"cudnn": "7.1.4"}, "cuDNN", "b: cuDNN is 7.1.4, not 7.6.5.32"),
        ({"cudnn": None}, "cuDNN", "b: cuDNN is missing, not 7.6.5.32"),
        (
            {"computes": {"0": None, "1": "out of memory"}},
            "MXNet computes on every GPU",
            "b: GPU 1: out of memory",
        ),
    ],
)
def test_a_failure_is_named_with_its_remedy(changes, check, says):
    lines = judged(**changes)
    ((result, why),) = lines.pop(check)
    assert result == "failed" and says in why[0]
    assert all(line == [("ok", [])] for line in lines.values())


def test_checks_that_did_not_run_are_listed_beside_the_others():
    lines = judged(driver=None, listed=0, device_query=None, computes={}, nvcc=None)
    assert lines["a driver that CUDA works with"][0][0] == "failed"
    assert lines["MXNet computes on every GPU"] == [
        ("ok", []),
        ("not run", ["b: no driver shows a GPU"]),
    ]
    assert (
        lines["NVIDIA's deviceQuery"][1][0] == "not run"
        and lines["CUDA's compiler"][1][0] == "not run"
    )
