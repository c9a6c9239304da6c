"""Read the use and the memory of GPUs through NVML, the library of NVIDIA's driver.

One handle serves all readings, so no program starts. The library may be missing, older than this
module, or unable to tell a figure. Such a figure is None. A call may also hang or crash in the
driver, so only a process that a job can lose calls this module.
"""

import ctypes
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Type, Union

LIBRARY = "libnvidia-ml.so.1"
SUCCESS, INSUFFICIENT_SIZE = 0, 7  # of nvmlReturn_t
NOT_AVAILABLE = 2**64 - 1  # the memory of a process that the driver cannot tell
FIRST_ROWS, MOST_ROWS = 16, 4096  # of the list of processes
TRIES = 3  # for a list of processes that grows between two calls


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, in percent."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class ProcessInfo1(ctypes.Structure):
    """nvmlProcessInfo_v1_t, of drivers before 450."""

    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]


class ProcessInfo2(ctypes.Structure):
    """nvmlProcessInfo_v2_t. Some drivers of the line 535 have a larger struct in version 3."""

    _fields_ = ProcessInfo1._fields_ + [("instance", ctypes.c_uint), ("compute", ctypes.c_uint)]


Row = Union[ProcessInfo1, ProcessInfo2]

# The functions for the list of processes, the preferred one first, with the struct of a row.
_LISTS: Sequence[Tuple[str, Type[Row]]] = (
    ("nvmlDeviceGetComputeRunningProcesses_v2", ProcessInfo2),
    ("nvmlDeviceGetComputeRunningProcesses", ProcessInfo1),
)


class GpuUse(NamedTuple):
    """The figures of a GPU at one time."""

    use: Optional[float]  # the part of the last moments in which the GPU computed, 0 to 1
    memory: Optional[Dict[int, int]]  # {pid of a computing process: its bytes}


class Nvml:
    """A handle of NVML. Raises OSError without a working library or driver.

    Args: `library` the name or path of the library.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        self._library = ctypes.CDLL(library)
        self._devices: Dict[int, ctypes.c_void_p] = {}
        if self._call("nvmlInit_v2") != SUCCESS:
            raise OSError("%s does not start: is the driver loaded?" % library)

    def look(self, number: int) -> GpuUse:
        """Return the figures of the GPU with the number `number` in nvidia-smi."""
        device = self._devices.get(number)
        if device is None:
            device = ctypes.c_void_p()
            index = ctypes.c_uint(number)
            if self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device)) != SUCCESS:
                return GpuUse(None, None)
            self._devices[number] = device
        return GpuUse(self._use(device), self._memory(device))

    def _use(self, device: ctypes.c_void_p) -> Optional[float]:
        found = Utilization()
        code = self._call("nvmlDeviceGetUtilizationRates", device, ctypes.byref(found))
        return found.gpu / 100.0 if code == SUCCESS and found.gpu <= 100 else None

    def _memory(self, device: ctypes.c_void_p) -> Optional[Dict[int, int]]:
        for name, row in _LISTS:
            rows = self._rows(name, row, device)
            if rows is not None:
                return {one.pid: one.memory for one in rows if one.memory != NOT_AVAILABLE}
        return None

    def _rows(self, name: str, row: Type[Row], device: ctypes.c_void_p) -> Optional[List[Row]]:
        """Return the list of processes from the function `name`, None if the function fails."""
        size = FIRST_ROWS
        for _ in range(TRIES):
            rows, count = (row * size)(), ctypes.c_uint(size)
            code = self._call(name, device, ctypes.byref(count), rows)
            if code == SUCCESS:
                return [rows[place] for place in range(min(count.value, size))]
            if code != INSUFFICIENT_SIZE:
                return None
            size = min(MOST_ROWS, 2 * max(size, count.value))
        return None

    def _call(self, name: str, *arguments: object) -> Optional[int]:
        """Return the result of a function of the library, None if the library lacks it."""
        function = getattr(self._library, name, None)
        if function is None:
            return None
        function.restype = ctypes.c_int
        return int(function(*arguments))
