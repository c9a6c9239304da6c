"""Import MXNet beside an old or new numpy, and list MXNet's model zoo."""

import gc
import os
import sys
import types
from typing import Iterator, List, Tuple

from mxcluster.errors import BadInput
from mxcluster.node import lazy_operators
from mxcluster.node.mxnet_types import NDArray, Package

# Names that numpy 2 or an earlier numpy removed, with today's names. MXNet reads the old names.
RENAMED = {
    "alltrue": "all",
    "sometrue": "any",
    "product": "prod",
    "round_": "round",
    "trapz": "trapezoid",
}
# mx.np re-exports these functions of numpy 1.19 and older.
FINANCIAL = ("mirr", "npv", "pmt", "ppmt", "pv", "rate")


def import_mxnet() -> Package:
    """Import mxnet beside any version of numpy, and return the module mxnet.

    - MXNet up to 1.9.1 is written for numpy 1.19 and older. `adapt` completes a newer numpy.
    - `import mxnet` with DMLC_ROLE=server or scheduler runs the server's loop inside the import and
      never returns. During the import the function sets the role "worker", and then restores
      the role.
    - `lazy_operators` saves most of the import's CPU time.
    """
    import numpy

    adapt(numpy)
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


def adapt(numpy: Package) -> None:
    """Give a newer `numpy` the names and the texts that MXNet uses.

    MXNet passes the arguments of an operator to its library as texts. Since numpy 2 the text of a
    tuple of numpy's numbers is "(np.int64(3),)", and the library refuses it. The function restores
    the texts of numpy 1, such as "(3,)".
    """
    for name, value in _former(numpy):
        # hasattr() would warn about numpy.bool on numpy 1.20 .. 1.23.
        numpy.__dict__.setdefault(name, value)
    if int(numpy.__version__.split(".")[0]) < 2:
        return
    numpy.set_printoptions(legacy="1.25")
    # Since numpy 2.1 that holds for the calling thread. Other threads take a default, which has no
    # public name: a new context gives it.
    options = sys.modules.get("numpy._core.printoptions")
    if options is not None:
        import contextvars  # Python 3.6 has no such module

        default = contextvars.Context().run(options.format_options.get)
        default["legacy"] = options.format_options.get()["legacy"]


def _former(numpy: Package) -> Iterator[Tuple[str, object]]:
    """Yield the names that MXNet reads and that some `numpy` has removed, with their values."""

    def in1d(ar1: NDArray, ar2: NDArray, *args: object, **options: object) -> NDArray:
        return numpy.isin(numpy.ravel(ar1), ar2, *args, **options)

    inf, nan = float("inf"), float("nan")
    yield from dict(PINF=inf, Inf=inf, NINF=-inf, NaN=nan, NAN=nan, PZERO=0.0, NZERO=-0.0).items()
    yield from (("bool", bool), ("in1d", in1d), ("msort", lambda a: numpy.sort(a, axis=0)))
    yield "compat", types.SimpleNamespace(basestring=str)
    yield from ((old, vars(numpy).get(new)) for old, new in RENAMED.items())
    yield from ((name, _withdrawn(name)) for name in FINANCIAL)


def _withdrawn(name: str) -> object:
    """Return a function in place of numpy's financial function `name`, which numpy removed."""

    def refuse(*args: object, **options: object) -> None:
        raise BadInput(
            "mx.np.%s calls a function that numpy 1.20 removed: add numpy-financial to "
            "mxnet_packages, run provision.yml, and call numpy_financial.%s" % (name, name)
        )

    return refuse


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
