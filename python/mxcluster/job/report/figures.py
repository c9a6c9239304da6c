"""Describe the interactive figures of a page, and embed the library that draws them.

figures.js draws the figures of all pages with BokehJS: of a job, a profile, a sweep and the history
of runs. A page contains the compressed library, so that it opens without a network. This module
reads the library from the package bokeh, and never imports bokeh.
"""

import base64
import functools
import gzip
import importlib.util
import json
import math
import os
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from mxcluster.errors import BadInput

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = ("bokeh.min.js", "bokeh-api.min.js")  # in the package, in the order of loading
DIGITS = 6  # significant digits of a number in a page
# Points of all lines of a page together. A point has up to five numbers, about 40 bytes.
MOST_POINTS = 24000
FEWEST_POINTS = 20  # of a line, whatever the number of lines
CALL = "mxclusterRun"  # the function of the history page that takes the figures of a run

Values = Sequence[Optional[float]]


class Member(NamedTuple):
    """A worker, scheme or run, which a reader can switch on and off in all figures of a page."""

    name: str
    colour: str  # of CSS
    dash: Sequence[float] = ()  # lengths of dashes and gaps in pixels, empty for a solid line


class Line(NamedTuple):
    """A line of a member. The values of each axis in `x` and of `y` have the same length."""

    member: int  # the position in Figures.members
    x: Mapping[str, Values]  # {axis: values}, None for an unknown value
    y: Values
    low: Values = ()  # the ends of an error bar at each point, or empty
    high: Values = ()
    points: bool = False  # True for a mark at each point


class Lines(NamedTuple):
    """A figure of lines."""

    title: str
    axes: Sequence[str]  # the axes that all lines have; the reader chooses one
    y_title: str
    lines: Sequence[Line]
    smooth: bool = False  # True if a reader can smooth the lines
    zero: bool = False  # whether the vertical axis begins at zero
    level: Optional[float] = None  # a horizontal line
    moment: Optional[float] = None  # a vertical line at this time, on the axis SECONDS only
    moment_name: str = ""
    kind: str = "lines"


class Bar(NamedTuple):
    """A series of bars. `y` has a value or None for each name of the figure."""

    name: str
    colour: str
    y: Values
    width: float = 0.7  # of the distance between two names
    pale: bool = False
    low: Values = ()  # the ends of an error bar at each name, or empty
    high: Values = ()


class Bars(NamedTuple):
    """A figure of bars by name."""

    title: str
    names: Sequence[str]
    y_title: str
    bars: Sequence[Bar]
    stacked: bool = False  # each series on top of the series before; else one in front of another
    beside: bool = False  # the bars of a name beside each other
    points: Sequence[Tuple[int, float]] = ()  # [(position in names, value)]
    x_title: str = ""
    level: Optional[float] = None  # a horizontal line
    kind: str = "bars"


class Figures(NamedTuple):
    """The figures of a page."""

    members: Sequence[Member]
    figures: Sequence[Union[Lines, Bars]]


def text(figures: Figures) -> str:
    """Return the JSON of `figures` for a script element, in which `<` cannot end the element."""
    content = json.dumps(_plain(figures), allow_nan=False, separators=(",", ":"))
    return content.replace("<", "\\u003c")


def call(name: str, figures: Figures) -> str:
    """Return a script that gives the `figures` of the run `name` to the history page."""
    title = json.dumps(name).replace("<", "\\u003c")
    return "%s(%s,%s);\n" % (CALL, title, text(figures))


def _plain(value: object) -> object:
    """Return `value` as JSON has it: a named tuple as an object, a float with DIGITS digits.

    A number that JSON lacks becomes None.
    """
    if isinstance(value, (Figures, Lines, Line, Member, Bars, Bar)):
        return {name: _plain(one) for name, one in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    short = float("%.*g" % (DIGITS, value))
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def kept(number: int, lines: int) -> List[int]:
    """Return the positions of the points to keep of `number` points of one of `lines` lines."""
    most = max(FEWEST_POINTS, MOST_POINTS // max(1, lines))
    step = max(1, -(-number // most))
    return sorted({*range(0, number, step), number - 1}) if number else []


@functools.lru_cache(maxsize=None)
def script() -> str:
    """Return figures.js, which draws the figures of a page."""
    with open(os.path.join(HERE, "figures.js"), encoding="utf-8") as stream:
        return stream.read()


@functools.lru_cache(maxsize=None)
def library() -> str:
    """Return BokehJS as base64 of gzip. Raises BadInput without the package bokeh."""
    found = importlib.util.find_spec("bokeh")
    if found is None or not found.origin:
        raise BadInput("the pages need the package bokeh: run `make venv` on the controller")
    folder = os.path.join(os.path.dirname(found.origin), "server", "static", "js")
    code = []
    for name in LIBRARY:
        with open(os.path.join(folder, name), "rb") as stream:
            code.append(stream.read())
    # Equal libraries give equal pages, so the archive has no time.
    return base64.b64encode(gzip.compress(b"\n".join(code), 6, mtime=0)).decode("ascii")
