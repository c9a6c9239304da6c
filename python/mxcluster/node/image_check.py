"""Check what a job needs in a container image: ``python -m mxcluster.node.image_check`` inside it.

The argument is a JSON object: {"image": name, "mpi": request of `mpi_installation.look`, null for a
training}. The last line of stdout is a JSON object: {"problems": [text, ...], "mpi": answer of
`mpi_installation.look`, or null}.

An image may have a Python that is too old for mxcluster. So this file imports the other modules
only after it has checked the version.
"""

import ctypes
import json
import os
import sys

LEAST = (3, 6)


def check(image, mpi):
    """Return {"problems": [text, ...], "mpi": dict or None} of the image `image` and this Python.

    Args: `mpi` the request of `mpi_installation.look`, None for a training.
    """
    problem = python_problem(sys.version_info) or (None if mpi else mxnet_problem())
    if problem or not mpi:
        return {"problems": ["the image %s %s" % (image, problem)] if problem else [], "mpi": None}
    from mxcluster.node import mpi_installation

    found = mpi_installation.look(dict(mpi, where="in the image " + image))
    return {"problems": found.pop("problems"), "mpi": found}


def python_problem(version):
    """Return a problem with the Python of this version (tuple), None without one."""
    if tuple(version[:2]) >= LEAST:
        return None
    return (
        "has Python %d.%d as its %s, and a job needs 3.6 or newer: name another one with -e "
        "image_python=..." % (version[0], version[1], os.path.basename(sys.executable))
    )


def mxnet_problem():
    """Return a problem with the MXNet of this Python as text, None without one.

    The text follows the name of the image.
    """
    from mxcluster.node import mxnet_compat

    try:
        mxnet_compat.import_mxnet()
    except ImportError as error:
        return "has no MXNet (%s): give an image that has one" % error
    except Exception as error:  # a missing library raises OSError, a wrong one nearly any exception
        return "cannot import its MXNet (%s: %s): install the library that the error names" % (
            type(error).__name__,
            error,
        )
    return without_distributed_store()


def without_distributed_store():
    """Return a problem if this MXNet was built without its distributed kv-store, else None.

    MXNet makes the store of a server without a connection, and raises an error if it has none.
    """
    from mxnet.base import _LIB, KVStoreHandle, c_str, py_str

    handle = KVStoreHandle()
    os.environ["DMLC_ROLE"] = "server"  # only now: with it, the import would run a server
    if _LIB.MXKVStoreCreate(c_str("dist_sync"), ctypes.byref(handle)) == 0:
        return None
    return (
        "has an MXNet without the distributed kv-store (%s): give an image with one that was built "
        "with USE_DIST_KVSTORE=1, as the wheels of MXNet are"
        % py_str(_LIB.MXGetLastError()).splitlines()[-1]
    )


if __name__ == "__main__":
    print(json.dumps(check(**json.loads(sys.argv[1]))))
    sys.stdout.flush()
    os._exit(0)  # the store is not freed: MXNet would look for its peers
