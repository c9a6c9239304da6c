"""The verdict on GPUs: what is wrong is named with its cure, and what was not checked is said."""
import copy

import pytest

from mxcluster import verify, verify_gpus

WANTED = {"version": "9.2", "release": "9.2.148", "driver": "396.37", "folder": "/usr/local/cuda-9.2", "cudnn": "7.6.5.32",
          "gpus": 2}
WELL = {"wanted": WANTED, "listed": 2, "driver": "470.256.02", "nouveau": False, "nvcc": "9.2.148",
        "device_query": "Result = PASS", "cudnn": "7.6.5", "unresolved": [], "computes": {"0": None, "1": None}}


def judged(**changes):
    """The lines for two nodes, the second one changed: {check: [(result, why), ...]}."""
    second = dict(copy.deepcopy(WELL), **changes)
    found = {}
    for line in verify_gpus.judge({"a": WELL, "b": second}, verify.line, verify.skipped):
        found.setdefault(line["check"], []).append((line["result"], line["why"]))
    return found


def test_all_is_well():
    lines = judged()
    assert len(lines) == 7 and all(line == [("ok", [])] for line in lines.values())


def test_without_gpus_there_is_nothing_to_say():
    assert verify_gpus.judge({}, verify.line, verify.skipped) == []


@pytest.mark.parametrize("changes, check, says", [
    ({"driver": "390.87"}, "a driver that CUDA works with", "b: driver 390.87 is older than 396.37, which CUDA 9.2 needs"),
    ({"listed": 1}, "a driver that CUDA works with", "b: nvidia-smi shows 1 GPUs and the PCI bus has 2"),
    ({"nouveau": True}, "no nouveau", "b: nouveau is loaded: start the node anew"),
    ({"nvcc": "9.0.176"}, "CUDA's compiler", "b: nvcc is of 9.0.176, not of 9.2.148"),
    ({"device_query": "Result = FAIL"}, "NVIDIA's deviceQuery", "b: deviceQuery says: Result = FAIL"),
    ({"unresolved": ["libcudart.so.9.2"]}, "the libraries that MXNet needs", "b: libmxnet.so needs libcudart.so.9.2, which the"),
    ({"cudnn": "7.1.4"}, "cuDNN", "b: cuDNN is 7.1.4, not 7.6.5.32"),
    ({"cudnn": None}, "cuDNN", "b: cuDNN is not there, not 7.6.5.32"),
    ({"computes": {"0": None, "1": "out of memory"}}, "MXNet computes on every GPU", "b: GPU 1: out of memory"),
])
def test_what_fails_is_named_with_its_cure(changes, check, says):
    lines = judged(**changes)
    (result, why), = lines.pop(check)
    assert result == "failed" and says in why[0]
    assert all(line == [("ok", [])] for line in lines.values())


def test_what_could_not_be_checked_is_said_beside_what_could():
    lines = judged(driver=None, listed=0, device_query=None, computes={}, nvcc=None)
    assert lines["a driver that CUDA works with"][0][0] == "failed"
    assert lines["MXNet computes on every GPU"] == [("ok", []), ("not run", ["b: no driver shows a GPU"])]
    assert lines["NVIDIA's deviceQuery"][1][0] == "not run" and lines["CUDA's compiler"][1][0] == "not run"
