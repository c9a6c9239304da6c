"""Define an MPI engine, and the state of an engine's program that has started the agents."""

from typing import Optional

from mxcluster.model.record import Record, field, record
from mxcluster.model.shapes import optional, text, whole


class MpiEngine(Record):
    """An MPI engine on a node or in an image."""

    engine: str = field(text)
    """The name, such as openmpi."""
    version: str = field(text)


class Process(Record):
    """A process (see `mxcluster.node.processes.Identity`)."""

    pid: int = field(whole(1))
    start_time: int = field(whole())


class EngineState(Process):
    """The content of engine.json. The process is the engine's program."""

    program: str = field(text)
    """The path of the program."""
    watcher: Process = field(record(Process))
    """The parent of the program."""
    exit_code: Optional[int] = field(optional(whole(-100, 255)), default=None)
    """The exit code of the program, or minus the number of the signal that ended it. None while the
    program runs."""
