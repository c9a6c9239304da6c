"""Run ansible-playbook with the given arguments, and print its CPU seconds on the last line.

The figure is the CPU time of ansible-playbook and its forks. It excludes the programs that these
processes start. If all nodes of the inventory are this machine, these programs do the nodes' work.
"""

import os
import resource
import sys
import tempfile

from ansible.cli.playbook import main
from ansible.executor.process.worker import WorkerProcess

WORDS = "seconds of the controller's CPU: "


def note(path):
    """Append the CPU seconds of this process to the file `path`."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open(path, "a") as stream:
        stream.write("%f\n" % (used.ru_utime + used.ru_stime))


def counted(run, path):
    """Return a method for a fork: it calls `run`, then appends the fork's CPU seconds to `path`."""

    def call(worker):
        try:
            return run(worker)
        finally:
            note(path)

    return call


if __name__ == "__main__":
    with tempfile.NamedTemporaryFile() as file:
        WorkerProcess._run = counted(WorkerProcess._run, file.name)
        sys.argv[0] = "ansible-playbook"
        try:
            code = main(sys.argv) or 0
        except SystemExit as end:
            code = end.code or 0
        note(file.name)
        print(WORDS + "%.2f" % sum(map(float, file.read().decode().split())), flush=True)
    os._exit(code if isinstance(code, int) else 1)
