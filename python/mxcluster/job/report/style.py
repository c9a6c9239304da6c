"""The common look of all pictures, and functions that draw pictures without a display."""

import contextlib
import io
import logging
import os
import string
import tempfile
import warnings
from typing import TYPE_CHECKING, Iterator, Mapping, Optional, Sequence, Tuple, Union

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Colour = Union[str, Tuple[float, float, float, float]]  # a name, or red, green, blue and alpha

# page.css inverts these colours on a dark screen, because drawing a second picture would take a
# third of a second in each job.
PAPER, INK, FAINT, GRID, BAD = "#ffffff", "#1f2933", "#5c6b7a", "#e4e8ec", "#c62828"
COLOURS = (
    "#4c78d0",
    "#f08a24",
    "#3fa55b",
    "#e0524f",
    "#9a6fd0",
    "#22a6b3",
    "#d96fae",
    "#a9842c",
    "#7f8fa3",
    "#8fbf3f",
)


@contextlib.contextmanager
def picture(panels: int, cache_dir: Optional[str]) -> Iterator[Tuple["Figure", Sequence["Axes"]]]:
    """Yield (figure, axes of each panel). Drawings in the with block get the common look.

    A row has two panels, and the last panel fills its row. The function does not use pyplot, so the
    figure draws with Agg on every host.

    Args:
        panels: the number of panels, at most 26.
        cache_dir: the folder of matplotlib's font list, None for a temporary folder. This folder
            keeps matplotlib's files out of the home folder.
    """
    with _matplotlib(cache_dir), _figure(panels) as drawing:
        yield drawing


def load(cache_dir: str) -> None:
    """Import matplotlib now, so that a later `picture` of this process or a fork begins at once.

    Args: `cache_dir` as in `picture`.
    """
    with _matplotlib(cache_dir):
        import matplotlib.figure  # noqa: F401


@contextlib.contextmanager
def _matplotlib(cache_dir: Optional[str]) -> Iterator[None]:
    """Let the first import of matplotlib in the with block find its folder, without warnings."""
    with contextlib.ExitStack() as stack:
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if cache_dir is None:
            cache_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="mxcluster-"))
        else:
            os.makedirs(cache_dir, exist_ok=True)
        before = os.environ.get("MPLCONFIGDIR")
        os.environ["MPLCONFIGDIR"] = cache_dir
        try:
            yield
        finally:
            if before is None:
                del os.environ["MPLCONFIGDIR"]
            else:
                os.environ["MPLCONFIGDIR"] = before


@contextlib.contextmanager
def _figure(panels: int) -> Iterator[Tuple["Figure", Sequence["Axes"]]]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    style = {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": INK,
        "figure.facecolor": PAPER,
        "axes.facecolor": PAPER,
        "axes.edgecolor": GRID,
        "axes.labelcolor": FAINT,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "axes.grid": True,
        "grid.color": GRID,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "lines.linewidth": 1.7,
        "lines.markersize": 4,
    }
    names = string.ascii_uppercase[:panels]
    rows = [(names[place : place + 2] * 2)[:2] for place in range(0, panels, 2)]
    with rc_context(style):
        figure = Figure(
            figsize=(12.4, 3.5 * len(rows) + 0.5),
            dpi=110,
            layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, wspace=0.03, hspace=0.04),
        )
        axes = figure.subplot_mosaic(";".join(rows))
        yield figure, [axes[name] for name in names]


def legend(figure: "Figure", handles: Sequence["Artist"], columns: int) -> None:
    """Draw a legend of `handles`, at most `columns` in a row, below all panels of `figure`."""
    if handles:
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=min(columns, len(handles)),
            handlelength=3.2,
            fontsize=9,
        )


def bars(
    axis: "Axes", heights: Mapping[int, float], label: str, colour: Colour, place: int, groups: int
) -> None:
    """Draw the bars of one of several groups beside each other, {x: height of the bar}.

    Args: `place` of the group from 0; `groups` the number of groups.
    """
    width = 0.8 / groups
    axis.bar(
        [x - 0.4 + width * (place + 0.5) for x in heights],
        list(heights.values()),
        width * 0.94,
        label=label,
        color=colour,
    )


def whole_numbers(axis: "Axes") -> None:
    """Let the x axis have marks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def png(figure: "Figure") -> bytes:
    """Return `figure` as a PNG (bytes). Equal figures give equal bytes."""
    output = io.BytesIO()
    figure.savefig(output, format="png", metadata={"Software": None})
    return output.getvalue()
