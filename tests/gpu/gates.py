"""What each row of `make gpu` needs, and the reason why a machine cannot run it."""

from tests.gpu.machine import CUDA

GPU, CARD, KERNEL, LIBCUDA, CUDART = "gpu", "card", "kernel", "libcuda", "libcudart"
IDLE, TWO, MXNET = "idle", "two", "mxnet"


def _busy(machine):
    """Return the programs that use the GPUs as text, "" without one."""
    return "; ".join("GPU %d is used by %s" % pair for pair in sorted(machine.busy.items()))


# {need: function of a Machine that returns the reason why the need is not met, or ""}
NEEDS = {
    GPU: lambda machine: "" if machine.gpus else "nvidia-smi shows no GPU",
    CARD: lambda machine: (
        "" if machine.real or machine.cards else "a stand-in is no device of the PCI bus"
    ),
    KERNEL: lambda machine: "" if machine.real else "no kernel module of NVIDIA is loaded",
    LIBCUDA: lambda machine: "" if machine.cuda_gpus else "libcuda shows no GPU",
    CUDART: lambda machine: (
        "" if machine.folder else "no CUDA in /usr/local, and %s names none" % CUDA
    ),
    IDLE: _busy,
    TWO: lambda machine: "" if len(machine.gpus) > 1 else "the machine has one GPU",
    MXNET: lambda machine: "" if machine.mxnet else machine.without_mxnet,
}


def missing(needs, machine):
    """Return the reason why a row cannot run on a machine, "" if it can.

    Args: `needs` names of NEEDS; the first that is not met gives the reason.
    """
    return next(filter(None, (NEEDS[need](machine) for need in needs)), "")
