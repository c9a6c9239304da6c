"""Import MXNet in any process of a job, also beside a newer numpy, and list its model zoo."""

import gc
import os
from typing import List

from mxcluster.errors import BadInput
from mxcluster.node import lazy_operators


def import_mxnet():
    """Import numpy and mxnet so that they work together, and return the module mxnet.

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
    # Python 3.7 and newer have gc.freeze. The objects of the import stay until the process ends.
    # Frozen objects take no part in garbage collections, of which the last one alone would take a
    # tenth of the import's time.
    if hasattr(gc, "freeze"):
        gc.freeze()
    return mxnet


def model_zoo() -> List[str]:
    """Return the names of the networks in MXNet's model zoo, sorted.

    MXNet offers no list of these names. For a wrong name get_model() raises an error that lists
    them, one a line, in 1.2.1, 1.5.1 and 1.9.1 alike. Raises BadInput if there is no such error.
    """
    from mxnet.gluon.model_zoo import vision

    try:
        vision.get_model("no such network")
    except ValueError as refusal:
        return sorted(line.strip() for line in str(refusal).splitlines()[1:] if line.strip())
    raise BadInput(
        "mxcluster cannot list the model zoo of this MXNet: set mxnet_version to a supported "
        "version, and run provision.yml"
    )
