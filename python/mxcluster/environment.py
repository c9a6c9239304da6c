"""Environment variables that several parts of mxcluster set or read."""

# The driver's tools number GPUs in PCI bus order. By default CUDA puts the fastest GPU first.
GPU_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

# MXNet splits an array of this many numbers or more over all servers. MXNet's default is
# 1,000,000.
BOUND = "MXNET_KVSTORE_BIGARRAY_BOUND"

# The CPU numbers of a process, such as "0,1". The process binds itself to them when it begins.
CPUS = "MXCLUSTER_CPUS"
# The number of threads of OpenMP, and of OpenBLAS and MKL in numpy and MXNet.
THREADS = "OMP_NUM_THREADS"
# Without this policy, a thread that waits for the others of its process spins. If another program
# then runs on one of the cores, all of them spin until that program gives the core back.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
