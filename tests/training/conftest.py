import pathlib
import tempfile

import pytest

from mxcluster.datasets import write_digits
from tests.often import seldom
from tests.training import loopback
from tests.training.environments import ENDS, NEWEST, VERSIONS, mxnet_environment

# How often a test sees each environment: the default is the newest and the oldest in `make test`,
# and all in `make soak`.
newest_often = pytest.mark.parametrize(
    "every_mxnet",
    [NEWEST, *(seldom(name) for name in VERSIONS if name != NEWEST)],
    indirect=True,
)


def by_turns(names, *cases):
    """Return a mark with which `make test` runs each case on one of ENDS, in turn.

    `make soak` runs each case in all environments. The cases share their code for all versions of
    MXNet, so half of the pairs are enough before a merge.

    Args: `names` of the parameters as for `pytest.mark.parametrize`; `cases`, each a tuple of
    their values, whose texts and numbers name the test.
    """
    rows = []
    for number, case in enumerate(cases):
        words = [str(value) for value in case if isinstance(value, (str, int)) and value != ""]
        for name in VERSIONS:
            row = pytest.param if name == ENDS[number % len(ENDS)] else seldom
            rows.append(row(name, *case, id="-".join([name, *words])))
    return pytest.mark.parametrize("every_mxnet, " + names, rows, indirect=["every_mxnet"])


@pytest.fixture(autouse=True)
def own_jobs(tmp_path):
    """End the jobs of a test before their folders go, also after a failure in a running job."""
    yield
    while loopback.started:
        loopback.started.pop().end()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the ends of all logs of the test's jobs to the report of a failed test."""
    report = (yield).get_result()
    if report.failed and call.when == "call":
        for job in loopback.started:
            report.sections.append(("job in %s" % job.folder, job.evidence()))


@pytest.fixture(scope="session")
def digits():
    """Return a folder with the data set of digits, which no test changes."""
    with tempfile.TemporaryDirectory(prefix="mxcluster-test-") as folder:
        write_digits(str(pathlib.Path(folder) / "digits.npz"))
        yield pathlib.Path(folder)


@pytest.fixture(params=[name if name in ENDS else seldom(name) for name in VERSIONS])
def every_mxnet(request):
    """Return each Environment in turn: the version of MXNet, and a Python with it.

    `newest_often` and `by_turns` mark tests that see one version in `make test`.
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
