"""Define an MPI engine, and the data of an engine's program that starts the agents of a job."""

from typing import Optional

from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import optional, text, whole, words
from mxcluster.model.status import Process

_exit_code = optional(whole(-100, 255))


class MpiEngine(Record):
    """An MPI engine on a node or in an image."""

    engine: str = field(text)
    """The name, such as openmpi."""
    version: str = field(text)


class EngineState(Process):
    """The content of engine.json. The process is the engine's program."""

    program: str = field(text)
    """The path of the program."""
    watcher: Process = field(record(Process))
    """The parent of the program."""
    exit_code: Optional[int] = field(_exit_code, default=None)
    """The exit code of the program, or minus the number of the signal that ended it. None while the
    program runs."""


class HolderLine(Record):
    """A line of a holder in the output of the engine."""

    started: Optional[str] = field(optional(words), default=None)
    """The host whose agent has started."""
    error: Optional[str] = field(optional(text), default=None)
    """The reason why the agent has not started or has failed."""


class ProgramEnd(Record):
    """The last line of a program of `mxcluster.agent`, for a person who reads the journal."""

    job: str = field(words)
    reason: Optional[str] = field(optional(words), default=None)
    """The reason of the end of the agent."""
    exit_code: Optional[int] = field(_exit_code, default=None)
    """The exit code of the engine's program."""
