"""Environment variables that the plan and the checks of a node must set to the same value."""

# The driver's tools number GPUs in PCI bus order. By default CUDA puts the fastest GPU first.
GPU_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
