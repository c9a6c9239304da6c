"""Import old MXNet with newer numpy, and in processes that are not workers."""

import gc
import os


def import_mxnet():
    """Import numpy and mxnet so that they work together, and return the module mxnet.

    - MXNet up to 1.9.1 uses `numpy.bool`, which numpy 1.24 removed: it is restored as the builtin.
    - `import mxnet` with DMLC_ROLE=server or scheduler runs the server's loop inside the import and
      never returns. During the import the role is "worker". Afterwards the old role is restored.
    """
    import numpy

    if "bool" not in vars(numpy):  # hasattr() would warn on numpy 1.20 .. 1.23
        numpy.bool = bool
    role = os.environ.get("DMLC_ROLE")
    if role is not None:
        os.environ["DMLC_ROLE"] = "worker"
    try:
        import mxnet
    finally:
        if role is not None:
            os.environ["DMLC_ROLE"] = role
    # Python 3.7 and newer. The objects of the import stay until the end. Frozen, they take no part
    # in any collection; the last collection alone would take a tenth of the import's time.
    if hasattr(gc, "freeze"):
        gc.freeze()
    return mxnet
