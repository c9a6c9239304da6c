import pytest

from mxcluster.job import report
from tests.unit.job.report import fake_run


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    """Return the folder of matplotlib's font list, which all tests share."""
    return str(tmp_path_factory.mktemp("matplotlib"))


@pytest.fixture(scope="session")
def good_run(tmp_path_factory, cache_dir):
    """Return the run folder of a successful gsync job with four workers in two groups."""
    return _run(tmp_path_factory.mktemp("good"), fake_run.make_plan(), cache_dir)


@pytest.fixture(scope="session")
def failed_run(tmp_path_factory, cache_dir):
    """Return the run folder of a job whose worker-3 died after 7 s; its log contains HTML."""
    return _run(
        tmp_path_factory.mktemp("failed"),
        fake_run.make_plan(),
        cache_dir,
        until=7.0,
        failed=(
            "worker-3",
            1,
            ["<script>alert('log')</script>", "ModuleNotFoundError: No module named 'gluoncv'"],
        ),
    )


def _run(folder, plan, cache_dir, **how):
    run_dir = folder / plan.job
    archives = fake_run.make_archives(str(folder / "nodes"), plan, epochs=6, batches=10, **how)
    report.assemble(str(run_dir), archives, plan, cache_dir)
    return run_dir
