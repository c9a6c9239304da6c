"""A Ctrl-C that arrives while a program forks."""

import signal
import subprocess
import sys

import pytest

FORKS = """
import os, signal, sys, time
if sys.argv[1] == "kept":
    from mxcluster.ansible import interrupts
    interrupts.keep()
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
child = os.fork()
if not child:
    os._exit(0)
os.waitpid(child, 0)
time.sleep(%d)
print("went on")
"""


@pytest.mark.parametrize("what, seconds, goes_on", [("kept", 60, False), ("lost", 0, True)])
def test_control_c_while_a_program_forks(what, seconds, goes_on):
    """The second case shows that Python alone drops it."""
    ended = subprocess.run(
        [sys.executable, "-c", FORKS % seconds, what], capture_output=True, text=True, timeout=120
    )
    assert ("went on" in ended.stdout) == goes_on, ended
    assert ended.returncode == (0 if goes_on else -signal.SIGINT), ended
