"""Descriptions of exit codes."""

import pytest

from mxcluster import exit_codes


@pytest.mark.parametrize(
    "code, words",
    [
        (3, "exited with status 3"),
        (93, "exited with status 93 (the script ended without making the distributed kv-store)"),
        (-9, "killed by signal 9 (SIGKILL)"),
        (-40, "killed by signal 40"),  # a real-time signal without a name
    ],
)
def test_describe(code, words):
    assert exit_codes.describe(code) == words
