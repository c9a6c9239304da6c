"""The verdict on GPUs: each failure with its remedy, and the checks that did not run."""

import copy

import pytest

from mxcluster.cluster.verify import gpus
from mxcluster.model.check_answer import GpuFacts
from mxcluster.model.node_record import Cuda

WANTED = {
    "version": "9.2",
    "release": "9.2.148",
    "driver": "396.37",
    "folder": "/usr/local/cuda-9.2",
    "cudnn": "7.6.5.32",
    "nccl": None,
    "sass": ["3.0", "7.0"],
    "gpus": 2,
}
LISTED = [{"uuid": "GPU-%d" % one, "bus": "00000000:0%d:00.0" % one} for one in range(2)]
PROBE = {
    "driver": {
        "version": 11040,
        "gpus": [
            {"uuid": "GPU-%d" % one, "bus": "0000:0%d:00.0" % one, "name": "V", "capability": "7.0"}
            for one in range(2)
        ],
        "peers": [[0, 1], [1, 0]],
    },
    "runtime": {"version": 9020, "count": 2},
    "cudnn": "7.6.5",
    "nccl": None,
}
WELL = {
    "wanted": WANTED,
    "listed": LISTED,
    "driver": "470.256.02",
    "nouveau": False,
    "nvcc": "9.2.148",
    "cudnn": "7.6.5",
    "unresolved": [],
    "probe": PROBE,
    "trials": {"0": None, "1": None, "0 -> 1": None, "1 -> 0": None},
}


DRIVER = "a driver that CUDA works with"
CHANGED = dict(WELL["trials"], **{"0 -> 1": "8 of 9 numbers arrive changed"})


def judged(**changes):
    """Return {check: [(result, why), ...]} of two nodes, the second one with `changes`."""
    second = dict(copy.deepcopy(WELL), **changes)
    found = {}
    nodes = {
        host: gpus.Node(GpuFacts.decode(facts), Cuda.decode(facts["wanted"]))
        for host, facts in (("a", WELL), ("b", second))
    }
    for line in gpus.judge(nodes):
        found.setdefault(line.check, []).append((line.result, line.why))
    return found


def test_all_checks_pass():
    lines = judged()
    assert lines.pop("NCCL") == [("not run", ["a, b: this MXNet contains NCCL"])]
    assert len(lines) == 10 and all(line == [("ok", [])] for line in lines.values())


def test_no_lines_without_gpus():
    assert gpus.judge({}) == []


@pytest.mark.parametrize(
    "changes, check, says",
    [
        ({"driver": "390.87"}, DRIVER, "b: driver 390.87 is older than 396.37, which CUDA 9.2 ne"),
        ({"listed": LISTED[:1], "probe": None}, DRIVER, "b: nvidia-smi shows 1 GPU, but the PCI b"),
        ({"nouveau": True}, "no nouveau", "b: the driver nouveau is loaded: restart the node"),
        ({"nvcc": "9.0.176"}, "CUDA's compiler", "b: nvcc has version 9.0.176, not 9.2.148"),
        (
            {"unresolved": ["libcudart.so.9.2"]},
            "the libraries that MXNet needs",
            "b: libmxnet.so needs libcudart.so.9.2, which the",
        ),
        ({"cudnn": "7.1.4"}, "cuDNN", "b: cuDNN is 7.1.4, not 7.6.5.32"),
        (
            {"trials": CHANGED, "probe": dict(PROBE, driver=dict(PROBE["driver"], peers=[]))},
            "MXNet copies between all GPUs",
            "arrive changed: see dmesg on this node",
        ),
    ],
)
def test_a_failure_is_named_with_its_remedy(changes, check, says):
    lines = judged(**changes)
    ((result, why),) = lines.pop(check)
    assert result == "failed" and says in why[0]
    others = [line for line in lines.values() if not any(one[0] == "not run" for one in line)]
    assert len(others) >= 5 and all(line == [("ok", [])] for line in others)


def test_checks_that_did_not_run_are_listed_beside_the_others():
    lines = judged(driver=None, listed=[], probe=None, trials={}, nvcc=None)
    assert lines["a driver that CUDA works with"][0][0] == "failed"
    not_run = ("not run", ["b: no driver shows a GPU"])
    assert lines["MXNet computes on every GPU"] == [("ok", []), not_run]
    for check in ("CUDA's compiler", "CUDA shows the GPUs of nvidia-smi", "CUDA's runtime"):
        assert [result for result, _ in lines[check]] == ["ok", "not run"]


def test_one_gpu_has_no_copies_to_check():
    lines = judged(trials={"0": None})
    not_run = ("not run", ["b: the driver shows fewer than two GPUs"])
    assert lines["MXNet copies between all GPUs"][1] == not_run


@pytest.mark.parametrize("number", [{}, {"gpus": None}])
def test_a_record_without_the_number_of_gpus_is_reported(number):
    wanted = {name: value for name, value in WANTED.items() if name != "gpus"}
    lines = judged(wanted=dict(wanted, **number))["a driver that CUDA works with"]
    not_run = ("not run", ["b: the node record has no number of GPUs: run provision.yml"])
    assert lines == [("ok", []), not_run]
    lines = judged(wanted=dict(wanted, **number), driver=None)["a driver that CUDA works with"]
    assert lines[0][0] == "failed" and "nvidia-smi shows none" in lines[0][1][0]
