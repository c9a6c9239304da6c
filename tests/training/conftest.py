import pathlib

import pytest

from tests.training.environments import ENDS, VERSIONS, mxnet_environment

also_between = pytest.mark.parametrize("every_mxnet", list(VERSIONS), indirect=True)


@pytest.fixture
def scripts():
    """Return the folder of the users' scripts."""
    return pathlib.Path(__file__).with_name("scripts")


@pytest.fixture(
    params=[
        pytest.param(version, marks=[pytest.mark.soak] * (version not in ENDS))
        for version in VERSIONS
    ]
)
def every_mxnet(request):
    """Return each supported MXNet in turn: its version, and a Python with it.

    Versions between the oldest and the newest run in `make soak`, and in tests marked with
    `also_between`.
    """
    return mxnet_environment(request.param)


@pytest.fixture
def mxnet_new():
    """Return the MXNet that provision.yml installs by default."""
    return mxnet_environment("1.9.1")


@pytest.fixture
def mxnet_python(every_mxnet):
    """Return the path of a Python with each MXNet."""
    return str(every_mxnet.python)
