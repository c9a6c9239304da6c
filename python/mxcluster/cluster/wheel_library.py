"""Measure a wheel of MXNet: the libraries that it needs, its code for GPUs, and its kv-store.

Nothing of the wheel runs.
"""

import contextlib
import mmap
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from typing import Dict, List, NamedTuple, Set, Tuple, Union

Image = Union[bytes, mmap.mmap]  # the content of an ELF file
Section = Tuple[str, int, int, int, int, int]  # name, type, address, offset, size, link

LIBRARY = "mxnet/libmxnet.so"
# Every system has these: glibc, and the libraries of gcc that programs in C++ need.
SYSTEM = {
    *("ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0"),
    *("librt.so.1", "libgcc_s.so.1", "libstdc++.so.6"),
}
DYNAMIC, NEEDED = 6, 1  # SHT_DYNAMIC and DT_NEEDED, see elf(5)
FATBIN, SASS = 0xBA55ED50, 2
# MXNet's own kernels come in hundreds of fat binaries, one a source file. The kernels of a cuDNN or
# NCCL inside are few, and have code for a few GPUs that MXNet's lack.
LEAST = 0.25
# Errors of `measure` for a file that is no complete wheel. zipfile raises RuntimeError for a
# password or an unknown compression.
DAMAGED = (
    ValueError,
    IndexError,
    EOFError,
    OverflowError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
# ps-lite reads this variable. A build without the distributed kv-store contains no ps-lite.
OF_KVSTORE = b"DMLC_PS_ROOT_URI"


class Measured(NamedTuple):
    """The facts about a wheel.

    Attributes:
        needed: the sonames that the system must provide for libmxnet.so and for the libraries
            beside it in the wheel, without SYSTEM.
        sass: the compute capabilities, such as "7.0", for which MXNet's own kernels have machine
            code: each capability that occurs in at least a quarter as many fat binaries as the most
            frequent capability.
        kvstore: True if the wheel has the distributed kv-store.
    """

    needed: List[str]
    sass: List[str]
    kvstore: bool


def measure(path: str, folder: str = "") -> Measured:
    """Return the facts about the wheel `path`.

    The function unpacks the libraries into temporary files of `folder`, by default the wheel's own.
    Raises an error of DAMAGED if the wheel is damaged or lacks libmxnet.so.
    """
    with zipfile.ZipFile(path) as packed, contextlib.ExitStack() as stack:
        beside = [
            name for name in packed.namelist() if os.path.dirname(name) == "mxnet" and ".so" in name
        ]
        if LIBRARY not in beside:
            raise ValueError("the file lacks %s" % LIBRARY)
        folder = folder or os.path.dirname(path) or "."
        images: Dict[str, mmap.mmap] = {}
        for name in beside:
            copied = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            with packed.open(name) as member:
                shutil.copyfileobj(member, copied, 1 << 20)
            copied.flush()
            images[os.path.basename(name)] = stack.enter_context(
                mmap.mmap(copied.fileno(), 0, access=mmap.ACCESS_READ)
            )
        outside = {one for image in images.values() for one in needed(image)}
        main = images[os.path.basename(LIBRARY)]
        return Measured(
            needed=sorted(outside - SYSTEM - set(images)),
            sass=own(fat_binaries(main)),
            kvstore=main.find(OF_KVSTORE) >= 0,
        )


def own(counts: Dict[int, int]) -> List[str]:
    """Return the capabilities of MXNet's own kernels: ["3.0", "7.0"] for {20: 1, 30: 225, 70: 225}.

    Args: `counts` {capability times 10: fat binaries}.
    """
    least = LEAST * max(counts.values(), default=0)
    return ["%d.%d" % divmod(one, 10) for one in sorted(counts) if counts[one] >= least]


def sections(image: Image) -> List[Section]:
    """Return [(name, type, address, offset, size, link)] of a 64-bit little-endian ELF image."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not an ELF file of a 64-bit little-endian machine")
    (start,) = struct.unpack_from("<Q", image, 40)
    size, number, names = struct.unpack_from("<HHH", image, 58)
    rows = [struct.unpack_from("<IIQQQQI", image, start + size * one) for one in range(number)]
    texts = rows[names][4]
    return [
        (text(image, texts + name), kind, address, offset, length, link)
        for name, kind, _, address, offset, length, link in rows
    ]


def text(image: Image, offset: int) -> str:
    """Return the text of an ELF image that begins at `offset` and ends with a zero byte."""
    return image[offset : image.find(b"\0", offset)].decode("ascii")


def needed(image: Image) -> List[str]:
    """Return the sorted NEEDED entries of an ELF image, such as "libcudart.so.9.2"."""
    there = sections(image)
    found = set()
    for _, kind, _, offset, length, link in there:
        if kind == DYNAMIC:
            for tag, value in struct.iter_unpack("<QQ", image[offset : offset + length]):
                if tag == NEEDED:
                    found.add(text(image, there[link][3] + value))
    return sorted(found)


def fat_binaries(image: Image) -> Dict[int, int]:
    """Return a Counter: how many fat binaries have machine code for a capability times 10.

    NVIDIA does not document the layout of its fat binaries. A header has the magic number, a
    version, its size and the size of its entries. An entry has its kind, the size of its header,
    the size of its code, and at byte 28 the capability times 10.
    """
    found: Dict[int, int] = Counter()
    for name, _, _, offset, length, _ in sections(image):
        if name != ".nv_fatbin":
            continue
        here, end = offset, offset + length
        while here + 16 <= end:
            magic, _, header, size = struct.unpack_from("<IHHQ", image, here)
            if magic != FATBIN:  # the linker fills gaps with zeros
                here += 8
                continue
            _refuse_empty(header + size)
            entry, here = here + header, here + header + size
            inside: Set[int] = set()
            while entry + 32 <= here:
                kind, _, header, size = struct.unpack_from("<HHIQ", image, entry)
                if kind == SASS:
                    inside.add(struct.unpack_from("<I", image, entry + 28)[0])
                _refuse_empty(header + size)
                entry += header + size
            for one in inside:
                found[one] += 1
    return found


def _refuse_empty(size: int) -> None:
    """Raise ValueError for an entry without bytes. The next entry would be the same for ever."""
    if not size:
        raise ValueError("the code for GPUs is damaged")
