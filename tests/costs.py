"""Write the processor time of each test into its JUnit file. `tools/suite.py` prints this time.

The cores of `make test` are never idle, so this time says what a test costs. It contains that of
ended children. It lacks that of containers, of background programs, and of the Pythons that run
many modules (`tests/ansible_modules.py`).
"""

import os

import pytest

_BEFORE = pytest.StashKey()


def _used():
    """Return the processor time of this process and its ended children in seconds."""
    return sum(os.times()[:4])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Measure from here, before the fixtures."""
    item.stash[_BEFORE] = _used()
    yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    """Note the time in the last report of the test, that of its fixtures' end."""
    if call.when == "teardown":
        item.user_properties.append(("processor", round(_used() - item.stash[_BEFORE], 2)))
