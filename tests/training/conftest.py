import pathlib

import pytest

from tests.training.environments import ENDS, VERSIONS, mxnet_environment

also_between = pytest.mark.parametrize("every_mxnet", list(VERSIONS), indirect=True)


@pytest.fixture
def scripts():
    """The folder of the users' scripts that the tests train with."""
    return pathlib.Path(__file__).with_name("scripts")


@pytest.fixture(params=[pytest.param(version, marks=[pytest.mark.soak] * (version not in ENDS)) for version in VERSIONS])
def every_mxnet(request):
    """Each MXNet that mxcluster is made for, in turn: its version, and the Python that has it.

    What is between the oldest and the newest is for `make soak`, but for the tests that are marked with `also_between`.
    """
    return mxnet_environment(request.param)


@pytest.fixture
def mxnet_new():
    """The MXNet that provision.yml installs by default."""
    return mxnet_environment("1.9.1")


@pytest.fixture
def mxnet_python(every_mxnet):
    """The path of a Python that has each MXNet."""
    return str(every_mxnet.python)
