"""Check a container image for a job. ``python -m mxcluster.node.image_check`` runs in the image.

The argument is a JSON object: {"image": name, "mpi": the JSON of an MpiRequest}. For a training,
"mpi" is null. The last line of stdout is a JSON object: {"problems": [message, ...], "mpi":
{"engine", "version"}, or null}.

The Python of an image may be too old for mxcluster. This file therefore checks the version before
it imports other modules.
"""

import ctypes
import json
import os
import sys

LEAST = (3, 6)


def check(image, mpi):
    """Check the image `image`, which runs this Python, and return {"problems", "mpi"}.

    "problems": a list of messages. "mpi": the engine and the version of an MPI program, else None.

    Args: `image` the name of the image; `mpi` the JSON of an MpiRequest, None for a training.
    """
    problem = python_problem(sys.version_info) or (None if mpi else mxnet_problem())
    if problem or not mpi:
        return {"problems": ["the image %s %s" % (image, problem)] if problem else [], "mpi": None}
    from mxcluster.model.node_requests import MpiRequest
    from mxcluster.node import mpi_installation

    request = MpiRequest.decode(dict(mpi, where="in the image " + image))
    found = mpi_installation.look(request)
    return {"problems": found.problems, "mpi": found.mpi and found.mpi.encode()}


def python_problem(version):
    """Return the message about a Python of this version (tuple) that is too old, else None.

    The message follows the name of the image.
    """
    if tuple(version[:2]) >= LEAST:
        return None
    return (
        "has Python %d.%d as its %s, and a job needs Python 3.6 or newer: name another Python of "
        "the image with -e image_python=..."
        % (version[0], version[1], os.path.basename(sys.executable))
    )


def mxnet_problem():
    """Return the message about a missing or unusable MXNet of this Python, else None.

    The message follows the name of the image.
    """
    from mxcluster.node import mxnet_compat

    try:
        mxnet_compat.import_mxnet()
    except ImportError as error:
        return "has no MXNet (%s): use an image with MXNet" % error
    except Exception as error:  # a missing library raises OSError, a wrong library any exception
        return "cannot import its MXNet (%s: %s): install the library that the error names" % (
            type(error).__name__,
            error,
        )
    return without_distributed_store()


def without_distributed_store():
    """Return the message about an MXNet without the distributed kv-store, else None.

    MXNet makes the store of a server without a connection. The call fails if this MXNet was built
    without the store.
    """
    from mxnet.base import _LIB, KVStoreHandle, c_str, py_str

    handle = KVStoreHandle()
    # The import of MXNet must come first: with this variable, the import would run a server.
    os.environ["DMLC_ROLE"] = "server"
    if _LIB.MXKVStoreCreate(c_str("dist_sync"), ctypes.byref(handle)) == 0:
        return None
    return (
        "has an MXNet without the distributed kv-store (%s): use an image with a wheel of MXNet, "
        "or build MXNet with USE_DIST_KVSTORE=1" % py_str(_LIB.MXGetLastError()).splitlines()[-1]
    )


if __name__ == "__main__":
    print(json.dumps(check(**json.loads(sys.argv[1]))))
    sys.stdout.flush()
    os._exit(0)  # without this, MXNet would free the store and wait for the other processes
