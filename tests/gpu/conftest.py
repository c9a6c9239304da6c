"""Run the rows that this machine can run, print the table, and write the report (`make gpu`).

A row is a test with the mark `row(name, *needs)`. Without a GPU the run ends at once with the
status NOTHING_PASSED.
"""

import datetime
import getpass
import os
import pathlib
import platform
import shutil
import socket
import subprocess

import pytest

from tests.gpu import gates, machine, table
from tests.gpu.any_gpu import NO_GPU, any_gpu
from tests.gpu.cluster import Cluster

PROJECT = pathlib.Path(__file__).resolve().parents[2]
FILE = PROJECT / ".state" / "gpu" / "report.txt"
_machine, _phases = pytest.StashKey(), pytest.StashKey()
_rows, _seen = pytest.StashKey(), pytest.StashKey()


def pytest_addoption(parser):
    parser.addoption("--gpu-report", default=str(FILE), help="the report of `make gpu`")


def pytest_configure(config):
    config.stash[_rows] = []


def pytest_sessionstart(session):
    """End the run without a GPU. pytest calls this only if tests/gpu is on its command line."""
    if session.config.option.collectonly:
        return
    if not any_gpu():
        pytest.exit(NO_GPU, table.NOTHING_PASSED)
    # By default the driver keeps the code that it compiles in the home.
    os.environ.setdefault("CUDA_CACHE_PATH", str(FILE.parent / "driver-cache"))


@pytest.fixture(scope="session")
def here(request):
    """Return the Machine."""
    if _machine not in request.config.stash:
        request.config.stash[_machine] = machine.look()
    return request.config.stash[_machine]


@pytest.fixture(autouse=True)
def gate(request, here):
    """Leave a row out that this machine cannot run."""
    reason = gates.missing(_mark(request.node).args[1:], here)
    if reason:
        pytest.skip(reason)


@pytest.fixture
def seen(request):
    """Return a function that adds a text to the column "what was seen"."""
    return request.node.stash.setdefault(_seen, []).append


@pytest.fixture(scope="session")
def made(here, request):
    """Return the Cluster, provisioned or with the reason why it is not.

    Its folder, beside the report, keeps the logs until the next run. An environment for GPUs has
    5 GB, more than many a /tmp.
    """
    folder = _file(request.config).parent / "run"
    shutil.rmtree(str(folder), ignore_errors=True)
    folder.mkdir(parents=True)
    cluster = Cluster(here, folder)
    cluster.provision()
    yield cluster
    cluster.end()


@pytest.fixture
def provisioned(gate, request):
    """Return the Cluster, which the first row that can use it provisions."""
    return request.getfixturevalue("made")


@pytest.fixture
def cluster(provisioned):
    """Return the provisioned Cluster. Without one the row is not run."""
    if provisioned.problem:
        pytest.skip("the row about provision.yml has failed")
    return provisioned


def _file(config):
    """Return the path of the report. A run of all folders does not know the option."""
    return pathlib.Path(config.getoption("--gpu-report", str(FILE)))


def _mark(item):
    return item.get_closest_marker("row")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    phases = item.stash.setdefault(_phases, [])
    phases.append((report.outcome, _reason(report, call), report.duration))
    if report.when == "teardown" and _mark(item):
        item.config.stash[_rows].append(_row(item, phases))


def pytest_report_teststatus(report, config):
    """Name the outcomes as the table does: a row on a stand-in has not passed."""
    if "row" not in report.keywords:  # another test of a run of all folders
        return None
    if report.when == "call" and report.passed:
        found = config.stash.get(_machine, None)
        outcome, _ = table.outcome([("passed", "")], bool(found and found.real))
        return outcome, ".", outcome
    if report.skipped:
        return table.NOT_RUN, "-", table.NOT_RUN
    return None


def _reason(report, call):
    """Return the reason of a failure or skip as one line: the message without its explanation."""
    if report.passed:
        return ""
    told = getattr(call.excinfo.value, "msg", None) or str(call.excinfo.value)
    return (told.splitlines() or [call.excinfo.type.__name__])[0]


def _row(item, phases):
    found = item.config.stash.get(_machine, None)
    outcome, reason = table.outcome(
        [(verdict, why) for verdict, why, _ in phases], bool(found and found.real)
    )
    told = "; ".join([*item.stash.get(_seen, []), *filter(None, [reason])])
    return table.Row(
        name=_mark(item).args[0],
        outcome=outcome,
        seen=table.private(told, _names()),
        seconds=round(sum(seconds for _, _, seconds in phases), 1),
    )


def _names():
    """Return {text that identifies the site: its replacement}."""
    host = socket.gethostname()
    return {
        str(pathlib.Path.home()): "HOME",
        str(PROJECT): "PROJECT",
        host: "HOST",
        host.partition(".")[0]: "HOST",
        getpass.getuser() if os.geteuid() else "": "USER",
    }


def pytest_sessionfinish(session):
    """Give the status of the rows, unless other tests ran, too."""
    rows = session.config.stash[_rows]
    if rows and len(rows) == session.testscollected and session.exitstatus in (0, 1):
        session.exitstatus = table.status(rows)


def pytest_terminal_summary(terminalreporter, config):
    """Print the table, and write the report."""
    rows, found = config.stash[_rows], config.stash.get(_machine, None)
    if not rows or not found:
        return
    report = _report(rows, found)
    text = table.text(report)
    file = _file(config)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    terminalreporter.write_line("")
    terminalreporter.write_line(text.partition("\n%s\n" % table.MARK)[0])
    terminalreporter.write_line("The file to send back: %s" % file)


def _report(rows, found):
    mxnet = found.mxnet.described if found.mxnet else "none: " + found.without_mxnet
    return table.Report(
        commit=_commit(),
        date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        stand_in=not found.real,
        system="%s, Linux %s" % (_system(), platform.release()),
        python=platform.python_version(),
        driver=found.driver,
        gpus=[
            gpu.replaced(uuid=table.private(gpu.uuid or "", {}) or None) for gpu in found.cuda_gpus
        ],
        mxnet=table.private(mxnet, _names()),
        rows=rows,
    )


def _system():
    """Return the name of the operating system, such as "Debian GNU/Linux 12 (bookworm)"."""
    try:
        with open("/etc/os-release", encoding="utf-8") as stream:
            lines = dict(line.rstrip().partition("=")[::2] for line in stream)
    except OSError:
        return "unknown"
    return lines.get("PRETTY_NAME", "unknown").strip('"')


def _commit():
    """Return the commit of the project, with "+changes" if files differ from it."""
    try:
        told = ["git", "-C", str(PROJECT)]
        commit = (
            subprocess.check_output([*told, "rev-parse", "--short=12", "HEAD"]).decode().strip()
        )
        changed = subprocess.check_output([*told, "status", "--porcelain", "-uno"])
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + "+changes" * bool(changed)
