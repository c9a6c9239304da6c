"""Submit a job to a batch system, such as Slurm, read the state of the job, and cancel the job.

Each module of this package serves one batch system, with the same functions and the row FACTS. The
name of the module is the value of the knob `launcher`. `refused` runs on the controller, `problem`
and `submit` run on the submit host, `hosts` and `on_node` on the first node of the job, `state` and
`cancel` on both.
"""

import importlib
import os
import re
import shutil
import types
from typing import List, Mapping, NamedTuple, Sequence

from mxcluster import calls, exit_codes
from mxcluster.errors import MxclusterError, shown


class Facts(NamedTuple):
    """The words of a batch system for the table of launchers, pages and messages.

    - `title`: the name of the batch system;
    - `submit`, `start`, `cancel`: the programs that submit a job, start a program on a node of the
      job, and cancel the job;
    - `queue`: the word for a queue, such as "partition";
    - `gres`: an example of the knob gres, with its option;
    - `needs`: {knob that a job needs: the source of its value}. Only this batch system reads it;
    - `programs`, `package`: the programs of the client, and its package in Debian;
    - `tells_cpus`: True if a job can know the CPUs that are its own on a node.
    """

    title: str
    submit: str
    start: str
    cancel: str
    queue: str
    gres: str
    needs: Mapping[str, str]
    programs: Sequence[str]
    package: str
    tells_cpus: bool = False


class Request(NamedTuple):
    """The wishes of a job: the values of the knobs num_nodes, queue, ..., and engine_options."""

    nodes: int
    queue: str
    environment: str  # the parallel environment
    time: str
    gres: str
    options: Sequence[str]


class State(NamedTuple):
    """The state of a job in the batch system.

    - `phase`: "waits" (in the queue), "stuck" (in the queue, but unable to start), "runs",
      "suspended", "ends" (its processes are ending), "ended", or "unknown" (without an answer of
      the batch system);
    - `why`: the reason that the batch system gives, or "". An ended job has the reason "" if the
      job has ended by itself, or if the batch system does not know the reason;
    - `again`: True if the batch system knows that no user, no limit and no error of the job is the
      cause. Another attempt at the job may then succeed.
    """

    phase: str
    why: str = ""
    again: bool = False


# Reasons for the refusal of an argument of sbatch or qsub.
LOG = "mxcluster reads the output of the job from batch.log"
NAME = "job_id sets the name of the job"
NO_OPTION = "it is no option, and mxcluster submits its own script"
NOTHING, WAIT = "%s would submit nothing", "%s would wait for the end of the job"
ONE_JOB = "mxcluster follows one job, and an array has several"
OWN_FOLDER = "the job runs in its job folder"
OWN_RESTARTS = "max_restarts sets the number of restarts"
OWN_SCRIPT = "mxcluster submits its own script"

PATIENCE = 30.0  # timeout for one answer of a batch system, in seconds


def names() -> List[str]:
    """Return the names of all batch systems: the modules of this package."""
    files = os.listdir(os.path.dirname(__file__))  # pkgutil would import inspect, for 6 ms
    return sorted(name[:-3] for name in files if name.endswith(".py") and name[0] != "_")


def of(launcher: str) -> types.ModuleType:
    """Return the module of the batch system. `launcher`: the value of the knob, such as slurm."""
    return importlib.import_module("%s.%s" % (__name__, launcher))


def facts(launcher: str) -> Facts:
    """Return the facts of the batch system `launcher`."""
    found: Facts = of(launcher).FACTS
    return found


def refusals(launcher: str, words: Sequence[str]) -> List[str]:
    """Return a message for each word of the knob engine_options that mxcluster refuses, or [].

    mxcluster submits a script of its own on stdin, and follows one job with the id that the program
    prints. An option that changes this protocol is refused by name. mxcluster's own arguments come
    last, so that they take precedence over all other options.
    """
    return [
        "engine_options: %s is refused, because %s: remove this argument of %s"
        % (shown(word), why, facts(launcher).submit)
        for word, why in of(launcher).refused(words)
    ]


def problem(launcher: str, wanted: Request) -> str:
    """Return the reason why this host cannot submit the job, or "".

    `launcher`: the batch system. `wanted`: the wishes of the job.
    """
    known = facts(launcher)
    lacking = [name for name in known.programs if not shutil.which(name)]
    if lacking:
        return (
            "launcher=%s: this host has no %s: install the client of %s (Debian: %s), or name a "
            "host with the client in -e submit_host="
            % (launcher, " and ".join(lacking), known.title, known.package)
        )
    try:
        found: str = of(launcher).problem(wanted)
    except MxclusterError as error:
        return "launcher=%s: %s does not answer: %s" % (launcher, known.title, error)
    return found


def call(argv: List[str], stdin: str = "") -> calls.Ended:
    """Run a program of the batch system for at most PATIENCE, and return its end."""
    return calls.run(argv, PATIENCE, dict(os.environ, LC_ALL="C"), stdin, "/")


def ask(argv: List[str]) -> str:
    """Run a program of the batch system, and return its stdout.

    Raises MxclusterError if the program fails.
    """
    code, out, err = call(argv)
    if code:
        raise MxclusterError("`%s` failed: %s" % (" ".join(argv[:4]), last(err or out)))
    return out


def last(text: str) -> str:
    """Return the last line of `text` that is not blank, or "no reason was given"."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason was given"


def number_of(launcher: str, argv: List[str], script: str, end: str) -> str:
    """Submit the shell script `script` with `argv`, and return the id of the job.

    Raises MxclusterError if the batch system refuses the job. Args: `launcher` its name; `end` the
    sign after the id in the last line of the output.
    """
    code, out, err = call(argv, stdin=script)
    number = last(out).split(end)[0]
    if code or not number.isdigit():
        raise MxclusterError("%s refuses the job: %s" % (facts(launcher).title, last(err or out)))
    return number


def head_killed(signum: int) -> State:
    """Return the State of a job that has ended because the signal `signum` has ended its head."""
    why = (
        "the program of mxcluster on the first node was %s. Find the program or the user that has "
        "sent the signal" % exit_codes.describe(-signum)
    )
    return State("ended", why, signum in exit_codes.FROM_OUTSIDE)


def seconds(limit: str) -> int:
    """Return the seconds of a time limit H:MM:SS, H:MM or a number of minutes."""
    parts = [int(part) for part in limit.split(":")]
    if len(parts) == 1:
        return 60 * parts[0]
    return 3600 * parts[0] + 60 * parts[1] + (parts[2] if len(parts) > 2 else 0)


def job_name(job: str) -> str:
    """Return the name of the job in the batch system. The name begins with a letter."""
    return "mxcluster-" + re.sub(r"[^A-Za-z0-9._-]", "_", job)
