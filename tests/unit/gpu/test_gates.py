"""What a machine lacks is "not run" with a reason; a machine that has all runs every row."""

import pytest

from mxcluster.model.check_answer import CheckError, CudaDriver, CudaGpu, CudaProbe, CudaRuntime
from mxcluster.node.gpus import Gpu
from tests.gpu import gates
from tests.gpu.machine import Machine
from tests.gpu.wheels import Mxnet

GPUS = [Gpu(number, "GPU-%d" % number, "bus", "Tesla T4", "470.1") for number in range(2)]
SHOWN = [CudaGpu(uuid=gpu.uuid, bus=gpu.bus, name=gpu.name, capability="7.5") for gpu in GPUS]
PROBE = CudaProbe(
    driver=CudaDriver(version=11040, gpus=SHOWN, peers=[]),
    runtime=CudaRuntime(version=11020, count=2),
    cudnn=None,
    nccl=None,
)
WHOLE = Machine(GPUS, 2, {}, True, PROBE, "/cuda", Mxnet("1.9.1", "11.2", "", "/cuda"))


def test_a_machine_with_all_runs_every_row():
    assert gates.missing(gates.NEEDS, WHOLE) == ""


CASES = [
    (gates.GPU, {"gpus": []}, "nvidia-smi shows no GPU"),
    (gates.CARD, {"real": False, "cards": 0}, "a stand-in is no device of the PCI bus"),
    (gates.KERNEL, {"real": False}, "no kernel module of NVIDIA is loaded"),
    (gates.LIBCUDA, {"probe": CheckError(error="no answer")}, "libcuda shows no GPU"),
    (gates.CUDART, {"folder": ""}, "no CUDA in /usr/local"),
    (gates.IDLE, {"busy": {1: "python3 (pid 7)"}}, "GPU 1 is used by python3 (pid 7)"),
    (gates.TWO, {"gpus": GPUS[:1]}, "the machine has one GPU"),
    (gates.MXNET, {"mxnet": None, "without_mxnet": "no wheel"}, "no wheel"),
]


def test_each_need_has_a_case():
    assert {need for need, _, _ in CASES} == set(gates.NEEDS)


@pytest.mark.parametrize("need, fields, reason", CASES)
def test_each_need_has_its_reason(need, fields, reason):
    machine = WHOLE._replace(**fields)
    assert gates.missing([need], machine).startswith(reason)
    others = [other for other in gates.NEEDS if other != need]
    if fields.keys() <= {"busy", "folder", "mxnet", "without_mxnet"}:
        assert gates.missing(others, machine) == ""


def test_a_machine_whose_driver_is_missing_still_runs_the_row_about_the_bus():
    assert gates.missing([gates.CARD], WHOLE._replace(real=False, gpus=[], cards=1)) == ""
