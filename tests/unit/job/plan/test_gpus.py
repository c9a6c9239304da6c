import pytest

from mxcluster.errors import BadInput
from mxcluster.job.plan.gpus import check_batch, per_worker, work_loads
from mxcluster.model.host_variables import of_hosts
from tests.inventories.cases import records_of
from tests.plans import process_of

RECORDS = records_of({"a": {"gpus": 4}, "b": {"gpus": 1}, "c": {"gpus": 0}, "d": {}})


@pytest.mark.parametrize(
    "lines, knob, variables, expected",
    [
        (["a", "b", "c", "d"], "auto", {}, [[0, 1, 2, 3], [0], [], []]),
        (["a", "b"], [0], {"a": {"gpus": "3"}}, [[0], [0]]),
        (["a", "a"], "auto", {}, [[0, 1], [2, 3]]),
        (["a", "a"], "auto", {"a": {"gpus": [2, 0, 1]}}, [[2, 0], [1]]),
    ],
)
def test_gpus_of_workers(lines, knob, variables, expected):
    assert per_worker(lines, knob, of_hosts("abcd", variables), RECORDS) == expected


@pytest.mark.parametrize(
    "lines, gpu_lists, speeds, expected",
    [
        (["a", "b"], [[0, 1, 2, 3], [0]], {}, [[], []]),
        (["a"], [[0, 1, 2, 3]], {"a": "3,1,2,1"}, [[3, 1, 2, 1]]),
        (["a"], [[3, 0]], {"a": [3, 1, 2, 0.5]}, [[0.5, 3]]),  # the order of the worker's GPUs
        (["a", "a"], [[0, 1], [2, 3]], {"a": "3,1,2,1"}, [[3, 1], [2, 1]]),
    ],
)
def test_speeds_of_a_workers_gpus(lines, gpu_lists, speeds, expected):
    variables = {host: {"gpu_speeds": speed} for host, speed in speeds.items()}
    variables = of_hosts("abcd", variables)
    assert work_loads(lines, gpu_lists, variables, RECORDS) == expected


@pytest.mark.parametrize(
    "batch_size, gpus, load, words",
    [
        (4, [2, 5], [20.0, 1.0], ["batch_size=4", "GPUs 2,5 of worker-0 on a", "4, 0", "speeds"]),
        (6, [0, 1, 2, 3], [], ["batch_size=6", "2, 2, 2, 0 samples. Use"]),
        (8, [0, 1, 2, 3], [], []),
    ],
)
def test_a_gpu_without_a_sample_is_refused(batch_size, gpus, load, words):
    process = process_of(host="a", gpus=gpus, work_load=load)
    if not words:
        return check_batch(batch_size, [process])
    with pytest.raises(BadInput) as refusal:
        check_batch(batch_size, [process])
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


HELD = {
    "a": {"gpus": {"0": "the job one", "2": "python3 (pid 7)"}},
    "b": {"gpus": {"0": "the job one"}},
}


def test_auto_takes_free_gpus():
    assert per_worker(["a", "a"], "auto", of_hosts("a", {}), RECORDS, HELD) == [[1], [3]]
    assert per_worker(["a"], [1, 3], of_hosts("a", {}), RECORDS, HELD) == [[1, 3]]


@pytest.mark.parametrize(
    "lines,knob,words",
    [
        (
            ["a"],
            [0, 1, 2],
            [
                "a: GPU 0 is held by the job one, GPU 2 is held by python3 (pid 7)",
                "leave gpus at auto",
            ],
        ),
        (
            ["b"],
            "auto",
            ["b: GPU 0 is held by the job one", "0 GPUs are free for 1 workers", "gpus=''"],
        ),
    ],
)
def test_a_held_gpu_is_refused_with_its_holder(lines, knob, words):
    with pytest.raises(BadInput) as refusal:
        per_worker(lines, knob, of_hosts("ab", {}), RECORDS, HELD)
    assert all(word in str(refusal.value) for word in words), refusal.value
