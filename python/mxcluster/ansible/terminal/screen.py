"""Write lines to the terminal or a pipe, and rewrite one live line in place on a terminal."""

import contextlib
import functools
import os
import shutil
import sys
from typing import Optional, TextIO

from ansible.utils.display import Display, get_text_width

WIDE = 160  # columns of a line into a pipe


def rewritable(stream: TextIO) -> bool:
    """Return True if the stream is a terminal that can rewrite a line."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def back(drawn: int, columns: int) -> str:
    """Return the control sequence that moves the cursor to the start of a line of `drawn` columns.

    `columns` is the present width of the terminal. If the terminal has become narrower than the
    line, the terminal has wrapped the line. The sequence then also erases the extra rows.
    """
    rows = (drawn - 1) // columns if drawn > columns > 0 else 0
    return "\r\033[%dA\033[J" % rows if rows else "\r"


class Screen:
    """The output of ansible-playbook. The lock of Ansible's display guards all methods.

    Ansible holds this lock while it starts a worker process. So no worker inherits a stream in the
    middle of a line.

    Ansible itself displays warnings and prompts at any time, also for a task in a fork. The screen
    removes the live line before each of these lines.

    Args: `display` of Ansible.
    """

    def __init__(self, display: Display) -> None:
        self._display, self._pid = display, os.getpid()
        self._drawn = 0  # columns of the live line, 0 without one
        shown = display.display

        @functools.wraps(shown)
        def after_the_live_line(*args: object, **options: object) -> None:
            if os.getpid() != self._pid or options.get("log_only"):
                shown(*args, **options)  # a fork sends the line to this process
                return
            with display._lock:
                self.clear()
                shown(*args, **options)

        display.display = after_the_live_line

    @property
    def columns(self) -> int:
        """The width of the terminal, or WIDE without a terminal."""
        return shutil.get_terminal_size((WIDE, 24)).columns

    def close(self) -> None:
        """Leave the display to Ansible."""
        with contextlib.suppress(AttributeError):  # closed before
            del self._display.display

    def say(self, text: str, color: Optional[str] = None, is_logged: bool = True) -> None:
        """Write a line that stays. Args: `is_logged` True for a line in Ansible's log, too."""
        with self._display._lock:
            self.clear()
            self._display.display(text, color=color, screen_only=not is_logged)
            sys.stdout.flush()

    def draw(self, text: str) -> None:
        """Replace the live line by `text`, cut at the width of the terminal."""
        with self._display._lock:
            columns = self.columns
            while get_text_width(text) > columns - 1:
                text = text[:-2] + "…"
            sys.stdout.write("%s%s\033[K" % (back(self._drawn, columns), text))
            sys.stdout.flush()
            self._drawn = get_text_width(text)

    def clear(self) -> None:
        """Remove the live line."""
        with self._display._lock:
            if self._drawn:
                columns = self.columns
                sys.stdout.write("%s\033[K" % back(self._drawn, columns))
                sys.stdout.flush()
                self._drawn = 0
