"""The program that `profile.yml` runs to measure workers, servers and the network."""

from typing import List

from mxcluster.training import programs

PROGRAM = "profile"


def main(argv: List[str]) -> int:
    """Measure this worker, the servers and the network. Return the exit status.

    `argv` is ProgramArguments as JSON. The exit status is 0, or 2
    for bad input. The process must be a worker of a job.
    """
    return programs.carry_out(PROGRAM, __name__ + ".measuring", argv)
