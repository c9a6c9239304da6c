"""Read the user's own build of MXNet, and use it in place of a wheel of the tables (mxnet_wheel).

A site builds MXNet from source, or uses a fork. The wheel must be one of a version in mxnet.yml,
because the other wheels of the environment follow from the version. All other checks of a pair run
on the facts of the file, as they do for the wheels of the tables.
"""

import contextlib
import os
import re
import shutil
import tempfile
from typing import Callable, Iterator

from mxcluster.cluster import pairs, version_table, wheel_library, wheels
from mxcluster.cluster.version_table import GpuWheel, MxnetRow, mxnet_row
from mxcluster.errors import BadInput, shown
from mxcluster.file_io import sha256
from mxcluster.model.software import OwnWheel

KNOB = "mxnet_wheel"
# All CUDAs of the line 11 have the library of this version.
CUDA_11 = "11.0"


def read(path: str, scratch: str) -> OwnWheel:
    """Return the facts about the wheel `path`.

    Raises BadInput if the file is no wheel of MXNet for Linux on x86_64, or if it lacks the
    distributed kv-store.

    Args: `scratch` a folder for temporary files, of up to 3 GB.
    """
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename
    from packaging.version import InvalidVersion

    about, file = "%s=%s" % (KNOB, path), os.path.basename(path)
    try:
        name, version, _, _ = parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise BadInput(
            "%s is not the name of a wheel (%s): give the file under the name that pip or setup.py "
            "has written, such as mxnet-1.9.1-py3-none-linux_x86_64.whl" % (about, error)
        ) from error
    if not name.startswith("mxnet"):
        raise BadInput(
            "%s is a wheel of %s, and not of MXNet: correct the path" % (about, shown(name))
        )
    try:
        digest, found = sha256(path), wheel_library.measure(path, scratch)
    except OSError as error:
        raise BadInput(
            "the controller cannot read %s (%s): correct the path or the rights of the file"
            % (about, error.strerror or error)
        ) from error
    except wheel_library.DAMAGED as error:
        raise BadInput(
            "%s is no complete wheel of MXNet (%s): build or copy the file again" % (about, error)
        ) from error
    if not found.kvstore:
        raise BadInput(
            "%s has no distributed kv-store, so it cannot train on several nodes: build MXNet with "
            "USE_DIST_KVSTORE=1 (make) or -DUSE_DIST_KVSTORE=ON (cmake)" % about
        )
    return OwnWheel(
        file=file,
        pin="%s==%s" % (name, version),
        sha256=digest,
        needed=found.needed,
        sass=found.sass,
    )


def spoken(own: OwnWheel) -> str:
    """Return the file and its digest as words."""
    return "%s (sha256 %s)" % (own.file, own.sha256)


def keep(path: str, own: OwnWheel, store: str, digest_of: Callable[[str], str] = sha256) -> None:
    """Copy the wheel `path` into the store, unless the store has it. The caller holds the lock.

    Raises BadInput if the file has changed since `read`. Args: `digest_of(path)` the sha256 of a
    file of the store.
    """
    kept = os.path.join(store, own.file)
    if os.path.isfile(kept) and digest_of(kept) == own.sha256:
        return
    with tempfile.TemporaryDirectory(prefix=wheels.DRAFT, dir=store) as draft:
        copied = os.path.join(draft, own.file)
        shutil.copyfile(path, copied)
        if sha256(copied) != own.sha256:
            raise BadInput(
                "%s=%s has changed since the start of this run: run the playbook again"
                % (KNOB, path)
            )
        os.replace(copied, kept)


@contextlib.contextmanager
def in_tables(own: OwnWheel, mxnet: str, wanted: str) -> Iterator[None]:
    """Let the tables have the wheel `own` as the only wheel of MXNet, while the block runs.

    Raises BadInput if the wheel has another version of MXNet, or another CUDA, or if no Python of
    this MXNet can run it.

    Args: `mxnet` the version in the tables; `wanted` the target of a node, see `pairs.target`.
    """
    row = mxnet_row(mxnet)
    check_version(own, mxnet)
    check_cuda(own, pairs.cuda_of(wanted))
    name, version = own.pin.split("==")
    pythons = {
        numpy: [one for one in versions if wheels.fits(own.file, name, version, one)]
        for numpy, versions in row.pythons.items()
    }
    if not any(pythons.values()):
        raise BadInput(
            "%s=%s fits no Python of MXNet %s on Linux x86_64, only %s do: build the wheel for one "
            "of these Pythons" % (KNOB, own.file, mxnet, ", ".join(pairs.pythons(mxnet)))
        )
    note = "%s names %s, which runs on no other Python." % (KNOB, own.file)
    tables = version_table.table()
    with version_table.in_place_of_files(
        tables.replaced(
            mxnet={mxnet: MxnetRow(note=note, pythons=pythons, wheels={wanted: own.pin})},
            wheel_sha256=dict(tables.wheel_sha256, **{own.pin: [own.sha256]}),
        ),
        {own.pin: GpuWheel(needed=own.needed, sass=own.sass)},
    ):
        yield


def check_version(own: OwnWheel, mxnet: str) -> None:
    """Raise BadInput if the wheel has another version of MXNet than `mxnet`."""
    from packaging.version import Version

    version = own.pin.split("==")[1]
    if Version(version).release != Version(mxnet).release:
        raise BadInput(
            "%s=%s contains MXNet %s, but mxnet_version is %s: set mxnet_version to the version "
            "from which you have built the wheel" % (KNOB, own.file, version, mxnet)
        )


def check_cuda(own: OwnWheel, cuda: str) -> None:
    """Raise BadInput if the wheel is built for another CUDA.

    A wheel with CUDA inside names no version, and passes for each.

    Args: `cuda` of the node such as "9.2", "" for a node that trains on its CPU.
    """
    found = [re.fullmatch(r"libcudart\.so\.(\d+\.\d+)", name) for name in own.needed]
    built = next((match.group(1) for match in found if match), "")
    if not cuda and (built or own.sass):
        raise BadInput(
            "%s=%s is built for CUDA%s, but this node trains on its CPU: set %s for the nodes with "
            "a GPU alone, as a variable of their group"
            % (KNOB, own.file, built and " " + built, KNOB)
        )
    if cuda and not built and not own.sass:
        raise BadInput(
            "%s=%s has no code for GPUs, but this node has a GPU and cuda_version is %s: build it "
            "with USE_CUDA, or %s" % (KNOB, own.file, cuda, pairs.ON_CPU)
        )
    expected = CUDA_11 if cuda.startswith("11.") else cuda
    if cuda and built and built != expected:
        raise BadInput(
            "%s=%s is built for CUDA %s, but cuda_version is %s: set cuda_version, or build the "
            "wheel for that CUDA" % (KNOB, own.file, built, cuda)
        )
