"""The MXNet of `make gpu`: which wheel fits which GPU, Python, driver and CUDA."""

import pytest

from tests.gpu import wheels
from tests.gpu.wheels import Lacking, Mxnet, choose

OWN = {"11.2": "/usr/local/cuda-11.2", "10.2": "/usr/local/cuda-10.2"}
OLD = {"10.2": OWN["10.2"]}


@pytest.mark.parametrize(
    "capabilities, driver, newest, named, others, expected",
    [
        # Maxwell to Ada: the newest MXNet for CUDA 11.2, with the libraries of PyPI
        (["5.2"], "535.104", 12020, {}, {}, Mxnet("1.9.1", "11.2", "", "")),
        (["8.9", "7.0"], "535.104", 12020, {}, {}, Mxnet("1.9.1", "11.2", "", "")),
        (["7.5"], "535.104", 12020, {}, OWN, Mxnet("1.9.1", "11.2", "", "")),
        (["7.5"], "535.104", 12020, OWN, {}, Mxnet("1.9.1", "11.2", "", OWN["11.2"])),
        # The driver is too old for the libraries of PyPI, which are of CUDA 11.8
        (["7.5"], "535.104", 12020, OLD, {}, Mxnet("1.9.1", "10.2", "", OWN["10.2"])),
        (["7.5"], "470.256", 11040, {}, OWN, Mxnet("1.9.1", "11.2", "", OWN["11.2"])),
        # Kepler: no wheel for CUDA 11 has its code
        (["3.7"], "470.256", 11040, {}, OWN, Mxnet("1.9.1", "10.2", "", OWN["10.2"])),
    ],
)
def test_the_newest_wheel_that_fits_is_taken(capabilities, driver, newest, named, others, expected):
    assert choose(capabilities, "3.11", driver, newest, named, others) == expected


@pytest.mark.parametrize(
    "capabilities, driver, newest, reason",
    [
        ([], "470.256", 11040, "libcuda shows no GPU"),
        (["9.0"], "550.1", 12040, "no wheel has code for a GPU with the compute capability 9.0: "),
        (["7.0", "12.0"], "570.1", 12080, "no wheel has code .* capability 12.0: prepare an MXNet"),
        (["2.0"], "390.1", 9010, "no wheel has code for a GPU with the compute capability 2.0"),
        (["7.5"], "470.256", 11040, "the wheels that fit need CUDA 9.0 or .*11.2: install one"),
        (["3.7", "8.6"], "470.256", 11040, "no wheel fits all of these: .* 3.7, 8.6, Python 3.11"),
        (["8.6"], "390.46", 9010, "no wheel fits all of these: compute capability 8.6, .*390.46"),
    ],
)
def test_without_a_wheel_the_reason_is_given(capabilities, driver, newest, reason):
    with pytest.raises(Lacking, match=reason):
        choose(capabilities, "3.11", driver, newest, {}, {})


def test_the_python_limits_the_wheels():
    assert wheels.fitting(["7.0"], "3.13", "470.256")[0].mxnet == "1.9.1"
    assert wheels.fitting(["7.0"], "2.7", "470.256") == []


def test_an_mxnet_is_described():
    assert Mxnet("1.9.1", "11.2", "", "").described == "1.9.1 for CUDA 11.2, with libraries of PyPI"
    assert Mxnet("1.6.0", "", "/p/mxnet", "").described == "1.6.0, prepared (MXCLUSTER_GPU_MXNET)"
