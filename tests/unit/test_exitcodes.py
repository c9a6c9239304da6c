"""Exit codes in words."""
import signal

import pytest

from mxcluster import exitcodes


@pytest.mark.parametrize("code, words", [
    (0, "exited with status 0"),
    (3, "exited with status 3"),
    (93, "exited with status 93 (the script ended without making the distributed kv-store)"),
    (-9, "killed by signal 9 (SIGKILL)"),
    (-signal.SIGSEGV, "killed by signal 11 (SIGSEGV)"),
    (-40, "killed by signal 40"),  # a real-time signal without a name
])
def test_describe(code, words):
    assert exitcodes.describe(code) == words


def test_only_ends_that_follow_another_are_reserved():
    assert exitcodes.reserved() == {exitcodes.PEER_DIED, exitcodes.KILLED_BY_AGENT}
    assert exitcodes.NO_KVSTORE not in exitcodes.reserved()
    assert exitcodes.UPDATER_FAILED not in exitcodes.reserved()
