"""The common look of all pictures, and functions that draw pictures without a display."""

import contextlib
import io
import logging
import os
import tempfile
import warnings
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, cast

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
def matplotlib_in(cache_dir: Optional[str]) -> Iterator[None]:
    """Silence matplotlib in the with block, and keep matplotlib's files out of the home folder.

    Args:
        cache_dir: the folder of matplotlib's font list, None for a temporary folder.
    """
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
            import matplotlib.figure  # noqa: F401  reads MPLCONFIGDIR

            yield
        finally:
            if before is None:
                del os.environ["MPLCONFIGDIR"]
            else:
                os.environ["MPLCONFIGDIR"] = before


@contextlib.contextmanager
def new_figure(layout: List[List[str]]) -> Iterator[Tuple[Any, Dict[str, Any]]]:
    """Yield (figure, {panel name: axes}). Drawings in the with block get the common look.

    The function does not use pyplot, so the figure draws with Agg on every host.

    Args:
        layout: a list of rows, each a list of panel names, as for matplotlib's subplot_mosaic.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

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
    }
    with rc_context(style):
        figure = Figure(
            figsize=(6.2 * max(2, len(layout[0])), 3.5 * len(layout) + 0.5),
            dpi=110,
            layout="constrained",
        )
        # matplotlib's types name a LayoutEngine; this engine is a ConstrainedLayoutEngine.
        engine = cast(Any, figure.get_layout_engine())
        engine.set(w_pad=0.12, h_pad=0.12, wspace=0.03, hspace=0.04)
        yield figure, cast(Any, figure).subplot_mosaic(layout)


def bars(
    axis: Any, heights: Mapping[int, float], label: str, colour: Any, place: int, groups: int
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


def whole_numbers(axis: Any) -> None:
    """Let the x axis have marks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def png(figure: Any) -> bytes:
    """Return `figure` as a PNG (bytes). Equal figures give equal bytes."""
    output = io.BytesIO()
    figure.savefig(output, format="png", metadata={"Software": None})
    return output.getvalue()
