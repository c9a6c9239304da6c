"""Find the MPI engine of this node, and check the engine for a job.

The module changes nothing on the node, and runs mpirun only with --version.
"""

import os
from typing import Dict, List, NamedTuple, Optional

from mxcluster import calls
from mxcluster.model.engine import MpiEngine
from mxcluster.model.node_requests import HERE, MpiRequest
from mxcluster.node import mpi_engines
from mxcluster.node.mpi_engines import ENGINES

SHELL = "/bin/bash"  # runs the commands of a job, which may contain `source`
PATIENCE = 30.0  # seconds to load an engine and to print all version texts
INFINIBAND = "/dev/infiniband"
_MARK = "mxcluster found mpirun: "
_ASK = (
    'for program in %%s; do\n  if found=$(command -v "$program"); then\n'
    '    printf "\\n%s%%%%s\\n" "$found"; "$found" --version 2>&1\n  fi\ndone' % _MARK
)


class Installed(NamedTuple):
    """An MPI engine of this node: the name in ENGINES, the version, and the path of mpirun."""

    engine: str
    version: str
    mpirun: str


class Found(NamedTuple):
    """The MPI engines of this node."""

    installed: Optional[Installed]  # the engine of the request
    others: List[Installed]  # all other engines
    output: List[str]  # the last three lines of the shell's output


class EngineLook(NamedTuple):
    """The result of a look at a node's MPI engine, or at its engine for containers."""

    problems: List[str]
    mpi: Optional[MpiEngine] = None  # on the node, or in the image
    image: Optional[str] = None  # the id of the image


def shell(pre_execution: str, command: str) -> List[str]:
    """Return the argument list that runs `command` in a shell, after the commands `pre_execution`.

    Both arguments are strings with shell commands. `command` has the variables that
    `pre_execution` sets.
    """
    return [SHELL, "-c", "\n".join(filter(None, (pre_execution, command)))]


def find(pre_execution: str, name: str = "", env: Optional[Dict[str, str]] = None) -> Found:
    """Find the MPI engines of this node.

    Args:
        pre_execution: the shell commands that load the engine.
        name: the name of the engine, "" for any engine.
        env: the environment of the commands, by default the environment of this process.
    """
    names = ENGINES[name].programs if name else ("mpirun", "mpiexec")
    line = shell("exec 2>&1\n" + pre_execution, _ASK % " ".join(names))
    ended = calls.run(line, PATIENCE, env, folder="/")
    output = "\n".join(filter(None, (ended.out, ended.err)))
    found = installed(output)
    return Found(
        installed=next((one for one in found if one.engine == (name or one.engine)), None),
        others=[one for one in found if name and one.engine != name],
        output=[line for line in output.splitlines() if line.strip()][-3:],
    )


def installed(output: str) -> List[Installed]:
    """Return an Installed for each engine in `output`, the output of the shell in `find`."""
    found = []
    for part in ("\n" + output).split("\n" + _MARK)[1:]:
        program, _, text = part.partition("\n")
        engine = mpi_engines.detect(text)
        if engine:
            found.append(Installed(engine[0], engine[1], program))
    return found


def look(request: MpiRequest) -> EngineLook:
    """Check this node for an MPI job."""
    found = find(request.pre_execution, request.runtime, dict(os.environ, **request.env))
    problems = []
    if request.infiniband and not os.path.isdir(INFINIBAND):
        problems.append(
            "mpi_infiniband=true, but the node has no %s: install the driver of its InfiniBand "
            "adapter, leave the node out with -e without=, or use -e mpi_infiniband=auto"
            % INFINIBAND
        )
    here = found.installed
    if here is None:
        problems.append(missing(request.runtime, request.pre_execution, found, request.where))
        return EngineLook(problems)
    return EngineLook(problems, MpiEngine(engine=here.engine, version=here.version))


def missing(name: str, pre_execution: str, found: Found, where: str = HERE) -> str:
    """Return the message for a place without the engine `name`, or "" for any engine.

    `pre_execution`: the shell commands that load the engine. `where`: the words for the place,
    which is a node or an image.
    """
    title, cure = "an MPI engine", "install an engine (packages openmpi-bin or mpich, or Intel MPI)"
    if name:
        title, cure = ENGINES[name].title, ENGINES[name].install
    text = "%s is not installed %s" % (title, where)
    if found.others:
        other = found.others[0]
        text += " (%s is %s %s)" % (other.mpirun, ENGINES[other.engine].title, other.version)
    elif found.output and (pre_execution or not os.path.exists(SHELL)):
        text += " (the shell prints: %s)" % " / ".join(found.output)
    text += ": %s, or load the engine in mpi_pre_execution_command" % cure
    return text + (", or name another mpi_runtime" if name else "")
