import pytest

from mxcluster import report
from tests.unit.report import fake_run


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    """matplotlib's font list, made once for all tests."""
    return str(tmp_path_factory.mktemp("matplotlib"))


@pytest.fixture(scope="session")
def good_run(tmp_path_factory, cache_dir):
    """The folder of a gsync job of four workers in two groups that went well."""
    return _run(tmp_path_factory.mktemp("good"), fake_run.make_plan(), cache_dir)


@pytest.fixture(scope="session")
def failed_run(tmp_path_factory, cache_dir):
    """The folder of a job whose worker-3 died after 7 seconds, with a log that would like to be HTML."""
    return _run(tmp_path_factory.mktemp("failed"), fake_run.make_plan(), cache_dir, until=7.0, failed=(
        "worker-3", 1, ["<script>alert('log')</script>", "ModuleNotFoundError: No module named 'gluoncv'"]))


def _run(folder, plan, cache_dir, **how):
    run_dir = folder / plan["job"]
    archives = fake_run.make_archives(str(folder / "nodes"), plan, epochs=6, batches=10, **how)
    report.assemble(str(run_dir), archives, plan, cache_dir)
    return run_dir
