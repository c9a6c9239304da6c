import pathlib

import pytest

from tests.often import seldom
from tests.training.environments import ENDS, NEWEST, VERSIONS, mxnet_environment

# How often a test sees each environment: the default is the newest and the oldest in `make test`,
# and all in `make soak`.
also_between = pytest.mark.parametrize("every_mxnet", list(VERSIONS), indirect=True)
newest_often = pytest.mark.parametrize(
    "every_mxnet",
    [NEWEST, *(seldom(name) for name in VERSIONS if name != NEWEST)],
    indirect=True,
)


@pytest.fixture
def scripts():
    """Return the folder of the users' scripts."""
    return pathlib.Path(__file__).with_name("scripts")


@pytest.fixture(params=[name if name in ENDS else seldom(name) for name in VERSIONS])
def every_mxnet(request):
    """Return each Environment in turn: the version of MXNet, and a Python with it.

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
