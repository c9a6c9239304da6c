"""An MPI program: the processes sum up their numbers, and each writes the sum to a file.

It calls the engine's library itself, so it needs no compiler and no package: `mpi_sum.py LIBRARY`.
With a second argument the process of rank 1 waits that many seconds before the sum. The variable
NUMBERS has the number of numbers of each process (1), for long messages.
"""

import ctypes
import os
import sys
import time

LIBRARY = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)


def constants():
    """Return (MPI_COMM_WORLD, MPI_INT, MPI_SUM): addresses in Open MPI, numbers in MPICH."""
    try:
        names = ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum")
        return [
            ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(LIBRARY, name))) for name in names
        ]
    except ValueError:
        return [ctypes.c_int(number) for number in (0x44000000, 0x4C000405, 0x58000003)]


LIBRARY.MPI_Init(None, None)
world, integer, addition = constants()
numbers = ctypes.c_int * int(os.environ.get("NUMBERS", "1"))
rank, size, total = ctypes.c_int(), ctypes.c_int(), numbers()
LIBRARY.MPI_Comm_rank(world, ctypes.byref(rank))
LIBRARY.MPI_Comm_size(world, ctypes.byref(size))
with open("begun-%d" % rank.value, "w") as stream:
    stream.write(str(os.getpid()))
if len(sys.argv) > 2 and rank.value == 1:
    time.sleep(float(sys.argv[2]))
own = numbers(*[rank.value + 1] * len(total))
# MPI_Allreduce would keep a core busy while the process waits for others.
request, done, status = ctypes.c_void_p(), ctypes.c_int(), ctypes.create_string_buffer(64)
LIBRARY.MPI_Iallreduce(own, total, len(total), integer, addition, world, ctypes.byref(request))
while not done.value:
    LIBRARY.MPI_Test(ctypes.byref(request), ctypes.byref(done), status)
    time.sleep(0.01)
line = "rank %d of %d on %s: sum %d" % (
    rank.value,
    size.value,
    os.environ["MXCLUSTER_HOST"],
    total[-1],
)
print(line, flush=True)
with open("rank-%d.txt" % rank.value, "w") as stream:
    stream.write(line + "\n")
LIBRARY.MPI_Finalize()
