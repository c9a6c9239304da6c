"""`make gpu` where no GPU is: it ends at once, and a stand-in for a GPU never passes."""

import os
import pathlib
import re
import runpy
import subprocess
import sys

import pytest

from tests.gpu import any_gpu, stand_in, table
from tests.training.environments import NEWEST, mxnet_environment

PROJECT = pathlib.Path(__file__).resolve().parents[3]
# The looks at the hardware, for a test on a machine that has a GPU.
WITHOUT_GPU = """
import sys, pytest
from mxcluster.node import gpus
gpus.count = gpus.cards = lambda *_: 0
sys.exit(pytest.main(sys.argv[1:]))
"""
# A machine with a GPU and its driver.
WITH_GPU = """
import os, sys, pytest
from mxcluster.node import driver, gpus
look, gpus.cards = os.stat, lambda *_: 1
os.stat = lambda path, **more: look("/dev/null" if path == "/dev/nvidiactl" else path, **more)
os.major, driver.loaded_version = lambda number: 195, lambda *_: "470.256.02"
sys.exit(pytest.main(sys.argv[1:]))
"""
KERNEL = "no kernel module of NVIDIA is loaded"
NOTHING = "a stand-in for a GPU computes nothing"


def run(*arguments, program=("-m", "pytest"), **environment):
    """Run pytest on the rows. Return the finished process, with its output as text."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("MXCLUSTER_")}
    kept.pop("PYTEST_ADDOPTS", None)  # of `make test`
    command = [sys.executable, *program, "-q", "-rN", "-p", "no:cacheprovider", "tests/gpu"]
    return subprocess.run(
        [*command, *arguments],
        cwd=str(PROJECT),
        env=dict(kept, **environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )


def test_without_a_gpu_make_gpu_ends_at_once_and_says_so(monkeypatch):
    monkeypatch.setattr(any_gpu.gpus, "count", lambda: 0)
    monkeypatch.setattr(any_gpu.gpus, "cards", lambda: 0)
    assert not any_gpu.any_gpu()
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(any_gpu.__file__, run_name="__main__")
    assert ended.value.code == table.NOTHING_PASSED


@pytest.mark.parametrize("sees", ["count", "cards"])
def test_a_gpu_without_a_driver_is_a_gpu(monkeypatch, sees):
    for name in ("count", "cards"):
        monkeypatch.setattr(any_gpu.gpus, name, lambda number=int(name == sees): number)
    assert any_gpu.any_gpu()


@pytest.mark.slow
def test_without_a_gpu_pytest_ends_at_once_and_says_so():
    done = run(program=("-c", WITHOUT_GPU))
    assert done.returncode == table.NOTHING_PASSED == 77, done.stdout
    assert "no GPU of NVIDIA here" in done.stdout and "nothing has passed" in done.stdout
    assert " passed" not in done.stdout.replace("nothing has passed", ""), done.stdout


def test_make_gpu_runs_the_rows():
    """`make test` runs the folders of tools/suite.py, which are none of these."""
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", "gpu"],
        cwd=str(PROJECT),
        stdout=subprocess.PIPE,
        check=True,
        env=dict(os.environ, MAKEFLAGS=""),  # those of the `make` that runs this test
    )
    lines = done.stdout.decode().splitlines()
    assert lines[0].endswith("python3 -m tests.gpu.any_gpu"), "before it makes .venv"
    assert lines[-1].startswith("pytest -q -rN tests/gpu")
    assert "tests/gpu" not in (PROJECT / "tools" / "suite.py").read_text()


@pytest.mark.slow
def test_every_row_has_a_name_of_its_own(tmp_path):
    """The collection alone works everywhere. docs/not-run.md names rows that exist."""
    (tmp_path / "names.py").write_text(
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        print('ROW', item.get_closest_marker('row').args[0])\n"
    )
    done = run("--collect-only", "-p", "names", PYTHONPATH=str(tmp_path))
    names = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    assert done.returncode == 0 and len(names) == len(set(names)) > 30, done.stdout
    page = (PROJECT / "docs" / "not-run.md").read_text()
    table_of_rows = page.partition("| row of `make gpu` |\n")[2].partition("\n\n")[0]
    named = [re.findall("`(.+?)`", line.split("|")[-2]) for line in table_of_rows.splitlines()]
    assert sum(named, []), "the page has no table with rows"
    assert not [one for one in sum(named, []) if not any(one in name for name in names)]


@pytest.fixture
def variables(tmp_path):
    """Return the environment variables of a stand-in with two GPUs."""
    (tmp_path / "stand-in").mkdir()
    return stand_in.build(tmp_path / "stand-in")


def report_of(tmp_path, *arguments, **environment):
    """Run rows, and return (the finished process, the Report)."""
    file = tmp_path / "report.txt"
    done = run("--gpu-report=%s" % file, *arguments, **environment)
    assert file.exists(), done.stdout
    return done, table.parsed(file.read_text())


@pytest.mark.slow
def test_the_rows_of_a_stand_in_do_not_pass(tmp_path, variables):
    done, report = report_of(tmp_path, **variables)
    assert done.returncode == table.NOTHING_PASSED, done.stdout
    assert report.stand_in and report.mxnet == "none: " + NOTHING
    assert {row.outcome for row in report.rows} == {table.STAND_IN, table.NOT_RUN}, done.stdout
    assert "passed" not in done.stdout.split("\nrow ")[1], done.stdout
    seen = {row.name: row.seen for row in report.rows if row.outcome == table.STAND_IN}
    assert len(seen) == 10, done.stdout
    assert "GPU 1 Stand-in 1 GPU-a1a1... bus 00000000:3C:00.0" in seen["nvidia-smi lists the GPUs"]
    assert "GPU-a0a0a0a0" not in done.stdout
    reasons = {row.seen for row in report.rows if row.outcome == table.NOT_RUN}
    assert reasons == {KERNEL, NOTHING, "a stand-in is no device of the PCI bus"}


@pytest.mark.slow
def test_a_stand_in_is_one_on_a_machine_with_a_gpu(tmp_path, variables):
    """Else its rows count as passed, and those about MXNet fetch CUDA's libraries."""
    rows = ("-k", "parsed or bus_shows or computes_on_every")
    done, report = report_of(tmp_path, *rows, program=("-c", WITH_GPU), **variables)
    assert done.returncode == table.NOTHING_PASSED and report.stand_in, done.stdout
    assert [row.outcome for row in report.rows] == [table.STAND_IN, table.NOT_RUN, table.NOT_RUN]
    assert report.mxnet == "none: " + NOTHING, done.stdout


@pytest.mark.slow
def test_a_wrong_answer_fails_its_row(tmp_path, variables):
    """libcudart shows another number of GPUs than nvidia-smi."""
    done, report = report_of(tmp_path, "-k", "libcudart", FAKE_COUNT="1", **variables)
    assert done.returncode == table.SOME_FAILED, done.stdout
    (row,) = [row for row in report.rows if row.outcome == table.FAILED]
    assert row.seen.startswith("cudaRuntimeGetVersion 11020 in ")
    assert "; libcudart shows 1 GPU, but nvidia-smi 2: run `nvidia-smi` as" in row.seen


@pytest.mark.soak
def test_the_rows_about_mxnet_run_on_devices_of_the_cpu(tmp_path, variables):
    """So each line of the rows has run, before a machine with a GPU runs it."""
    python = mxnet_environment(NEWEST).python
    (source,) = python.parents[1].glob("lib/python*/site-packages/mxnet")
    package = stand_in.package(source, tmp_path / "stand-in")
    done, report = report_of(tmp_path, MXCLUSTER_GPU_MXNET=str(package), **variables)
    assert done.returncode == table.NOTHING_PASSED, done.stdout
    left_out = {row.name for row in report.rows if row.outcome == table.NOT_RUN}
    assert len(left_out) == 3 and report.mxnet.startswith("1.9.1, prepared"), done.stdout
