"""How busy the machine is, for bounds on times in tests and for the evidence of a failure.

A bound on a time has one of four forms. The first that serves is the right one:

- The clock of the test is its own (an argument or a patched function): no machine decides.
- What would be wrong takes many times as long as the bound, for example 600 s against 30 s.
- `Stopwatch` measures the machine during the test, and scales the bound.
- The test has the mark `alone`, so that `make test` runs nothing beside it.
"""

import os
import subprocess
import threading
import time

BURST = 0.02  # seconds of work between two looks at the clocks, longer than a turn on a core
PAUSE = 0.18  # seconds between two bursts, so that the measurement takes a tenth of a core
# The lease of real jobs, in seconds. On a busy machine 5 s and 10 s ran out by themselves.
LEASE = 30


def described():
    """Return the load, the waits for processors and the busiest processes as text."""
    lines = ["machine at %s, load %.2f %.2f %.2f" % (time.strftime("%H:%M:%S"), *os.getloadavg())]
    for resource in ("cpu", "io", "memory"):
        try:
            with open("/proc/pressure/" + resource) as stream:
                lines.append("waits for %s: %s" % (resource, stream.readline().strip()))
        except OSError:  # an older kernel does not count them
            continue
    found = subprocess.run(
        ["ps", "-eo", "pid,ppid,stat,etimes,pcpu,args", "--sort=-pcpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines += [line[:160] for line in found.stdout.decode(errors="replace").splitlines()[:25]]
    return "\n".join(lines)


class Stopwatch:
    """A context that measures a time, and how much slower than quiet the machine is meanwhile.

    A thread works in short bursts. Their duration, divided by the processor time that they got, is
    the slowness: 1 on a quiet machine, 2 where two programs share each core. `seconds` and
    `slowness` are valid after the context.
    """

    def __enter__(self):
        self._stop, self._wall, self._worked = threading.Event(), 0.0, 0.0
        self._thread = threading.Thread(target=self._measure, daemon=True)
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *failure):
        self.seconds = time.monotonic() - self._began
        self._stop.set()
        self._thread.join()
        self.slowness = max(1.0, self._wall / self._worked)

    def _measure(self):
        while True:
            began, worked = time.monotonic(), time.thread_time()
            while time.thread_time() - worked < BURST:
                pass
            self._wall += time.monotonic() - began
            self._worked += time.thread_time() - worked
            paused = time.monotonic()
            if self._stop.wait(PAUSE):
                return
            self._wall += max(0.0, time.monotonic() - paused - PAUSE)

    def within(self, bound):
        """Return True if the time was at most `bound` seconds of a quiet machine, else fail."""
        allowed = bound * self.slowness
        assert self.seconds <= allowed, (
            "%.2f s, and %.2f s are allowed: %s s on a quiet machine, which is %.2f times slower "
            "now\n%s" % (self.seconds, allowed, bound, self.slowness, described())
        )
        return True
