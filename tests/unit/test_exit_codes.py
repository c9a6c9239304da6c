"""Descriptions of exit codes."""

import signal

import pytest

from mxcluster import exit_codes


@pytest.mark.parametrize(
    "code, words",
    [
        (0, "exited with status 0"),
        (3, "exited with status 3"),
        (93, "exited with status 93 (the script ended without making the distributed kv-store)"),
        (-9, "killed by signal 9 (SIGKILL)"),
        (-signal.SIGSEGV, "killed by signal 11 (SIGSEGV)"),
        (-40, "killed by signal 40"),  # a real-time signal without a name
    ],
)
def test_describe(code, words):
    assert exit_codes.describe(code) == words


def test_only_the_codes_of_consequences_are_reserved():
    assert exit_codes.reserved() == {exit_codes.PEER_DIED, exit_codes.KILLED_BY_AGENT}
    assert exit_codes.NO_KVSTORE not in exit_codes.reserved()
    assert exit_codes.UPDATER_FAILED not in exit_codes.reserved()
