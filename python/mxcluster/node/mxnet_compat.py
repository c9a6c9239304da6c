"""Old MXNet on newer numpy, and in processes that are not workers."""
import gc
import os


def import_mxnet():
    """Import numpy and mxnet as they can live together, and return the module mxnet.

    - MXNet up to 1.9.1 asks for `numpy.bool`, which numpy 1.24 has removed: it is put back as the builtin.
    - `import mxnet` with DMLC_ROLE=server or scheduler runs the server's loop inside the import and never returns:
      during the import the role is "worker"; afterwards it is what it was.
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
    if hasattr(gc, "freeze"):  # Python 3.7. What the import has made stays to the end: no collection has to go through it,
        gc.freeze()  # also not the last, which takes a tenth of the import's time
    return mxnet
