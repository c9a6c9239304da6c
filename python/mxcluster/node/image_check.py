"""Check the MXNet of a container image: ``python -m mxcluster.node.image_check`` inside it.

The last line of stdout is a JSON object, {"mxnet", "problem"}. "problem" is text that follows the
name of the image, or None.
"""

import ctypes
import json
import os
import sys
from typing import Any, Dict, Optional

from mxcluster.node import mxnet_compat

LEAST = (3, 6)


def check() -> Dict[str, Any]:
    """Return {"mxnet": version or None, "problem": text or None} of this Python."""
    if sys.version_info < LEAST:
        return _answer(None, "has Python %d.%d, and a job needs 3.6" % sys.version_info[:2])
    try:
        mxnet = mxnet_compat.import_mxnet()
    except ImportError as error:
        return _answer(None, "has no MXNet (%s): give an image that has one" % error)
    except Exception as error:  # a missing library raises OSError, a wrong one nearly any exception
        return _answer(
            None,
            "cannot import its MXNet (%s: %s): install the library that the error names"
            % (type(error).__name__, error),
        )
    return _answer(mxnet.__version__, without_distributed_store())


def without_distributed_store() -> Optional[str]:
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


def _answer(version: Optional[str], problem: Optional[str]) -> Dict[str, Any]:
    return {"mxnet": version, "problem": problem}


if __name__ == "__main__":
    print(json.dumps(check()))
    sys.stdout.flush()
    os._exit(0)  # the store is not freed: MXNet would look for its peers
