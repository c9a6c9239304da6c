"""Settings and the folder for temporary files of all tests."""

import gc
import pathlib
import shutil
import signal
import tempfile

import hypothesis
import pytest
import yaml

from tests import costs, machine
from tests.waiting import until

gc.disable()  # until `pytest_collection_finish`

# A run tries the same examples as the one before, and the speed of the machine decides nothing.
# `pytest --hypothesis-profile=random` tries others.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("random", deadline=None, database=None, max_examples=1000)
hypothesis.settings.load_profile("same")

# A shell starts a program in the background with SIGINT ignored, and all its children inherit this:
# a Ctrl-C of a test would end none of them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests read the project's YAML files again and again: libyaml takes a tenth of the time.
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def pytest_configure(config):
    """Measure what each test costs."""
    config.pluginmanager.register(costs)


def pytest_collection_finish(session):
    """Leave modules and collected tests out of garbage collections, a tenth of the tests' time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50000, 20, 50)


@pytest.fixture
def tmp_path():
    """Yield a folder for temporary files that other users can enter.

    It replaces pytest's own: each pytest that starts, also one of molecule, closes the folder that
    all runs share (`_pytest/tmpdir.py`), and a test that acts for another user fails then.
    """
    made = pathlib.Path(tempfile.mkdtemp(prefix="mxcluster-test-"))
    made.chmod(0o755)
    yield made

    def is_removed():
        shutil.rmtree(str(made), ignore_errors=True)  # a process of the test may still write
        return not made.exists()

    until(is_removed, evidence=lambda: "\n".join(map(str, made.rglob("*"))))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the load of the machine and its busiest processes to the report of a failed test."""
    report = (yield).get_result()
    if report.failed:
        report.sections.append(("machine", machine.described()))
