"""Import MXNet beside an old or new numpy, and list MXNet's model zoo."""

import gc
import os
from typing import List

from mxcluster.errors import BadInput
from mxcluster.node import lazy_operators


def import_mxnet():
    """Import mxnet beside any version of numpy, and return the module mxnet.

    - MXNet up to 1.9.1 uses `numpy.bool`, which numpy 1.24 removed. The function sets `numpy.bool`
      to the builtin.
    - `import mxnet` with DMLC_ROLE=server or scheduler runs the server's loop inside the import and
      never returns. During the import the function sets the role "worker", and then restores
      the role.
    - `lazy_operators` saves most of the import's CPU time.
    """
    import numpy

    if "bool" not in vars(numpy):  # hasattr() would warn on numpy 1.20 .. 1.23
        numpy.bool = bool
    role = os.environ.get("DMLC_ROLE")
    if role is not None:
        os.environ["DMLC_ROLE"] = "worker"
    try:
        with lazy_operators.during_import():
            import mxnet
    finally:
        if role is not None:
            os.environ["DMLC_ROLE"] = role
    # Python 3.7 and newer have gc.freeze, which excludes the objects of the import from garbage
    # collection. These objects stay until the process ends. The last collection alone would take a
    # tenth of the import's time.
    if hasattr(gc, "freeze"):
        gc.freeze()
    return mxnet


def model_zoo() -> List[str]:
    """Return the names of the networks in MXNet's model zoo, sorted.

    The function reads the names from the error of get_model() for a wrong name. The error lists one
    name a line in MXNet 1.2.1, 1.5.1 and 1.9.1. Raises BadInput if get_model() raises no error.
    """
    from mxnet.gluon.model_zoo import vision

    try:
        vision.get_model("no such network")
    except ValueError as refusal:
        return sorted(line.strip() for line in str(refusal).splitlines()[1:] if line.strip())
    raise BadInput(
        "cannot list the model zoo of this node's MXNet: set mxnet_version to a supported version, "
        "and run provision.yml"
    )
