"""Define the hooks of a site: its own tasks around a job, and a program that gets the verdict."""

from typing import Sequence

from mxcluster.model.record import Record, field
from mxcluster.model.shapes import anything, each, text


class Hooks(Record):
    """The hooks of a job, which the controller has checked."""

    notify: Sequence[str] = field(each(text), default=[])
    """The program and its arguments; [] for no program."""
    before: Sequence[str] = field(each(text), default=[])
    """The absolute paths of the files with tasks for each node before the start of the job."""
    after: Sequence[str] = field(each(text), default=[])
    """The same for the end of the job."""


class GivenHooks(Record, strict=True):
    """The knobs of the hooks as the user gave them, None for a default."""

    notify_command: object = field(anything, default=None)
    tasks_before: object = field(anything, default=None)
    tasks_after: object = field(anything, default=None)


NO_HOOKS = GivenHooks()
