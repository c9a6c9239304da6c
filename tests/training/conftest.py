import pathlib

import pytest

from tests.often import seldom
from tests.training.environments import ENDS, NEWEST, VERSIONS, mxnet_environment

# How often a test sees each MXNet: the default is the newest and the oldest in `make test`, and all
# in `make soak`.
also_between = pytest.mark.parametrize("every_mxnet", list(VERSIONS), indirect=True)
newest_often = pytest.mark.parametrize(
    "every_mxnet",
    [NEWEST, *(seldom(version) for version in VERSIONS if version != NEWEST)],
    indirect=True,
)


@pytest.fixture
def scripts():
    """Return the folder of the users' scripts."""
    return pathlib.Path(__file__).with_name("scripts")


@pytest.fixture(params=[version if version in ENDS else seldom(version) for version in VERSIONS])
def every_mxnet(request):
    """Return each supported MXNet in turn: its version, and a Python with it.

    `also_between` and `newest_often` mark tests that see other versions in `make test`.
    """
    return mxnet_environment(request.param)


@pytest.fixture
def mxnet_new():
    """Return the MXNet that provision.yml installs by default."""
    return mxnet_environment(NEWEST)


@pytest.fixture
def mxnet_python(every_mxnet):
    """Return the path of a Python with each MXNet."""
    return str(every_mxnet.python)
