"""Keep a Ctrl-C that arrives while ansible-playbook forks.

Python runs functions after a fork, and drops an exception in one of them. The KeyboardInterrupt of
a Ctrl-C may be this exception, and then the command goes on. A program that forks all the time lost
2 of 30. ansible-playbook forks for each task and host.
"""

import os
import signal
import sys
import threading

SOON = 0.05  # seconds until the signal comes again, when the fork is over


def keep() -> None:
    """Send SIGINT to this process again whenever Python has dropped a KeyboardInterrupt."""
    own, before = os.getpid(), sys.unraisablehook

    def again(dropped: "sys.UnraisableHookArgs") -> None:
        if dropped.exc_type is KeyboardInterrupt and os.getpid() == own:
            threading.Timer(SOON, os.kill, (own, signal.SIGINT)).start()
        else:
            before(dropped)

    sys.unraisablehook = again
