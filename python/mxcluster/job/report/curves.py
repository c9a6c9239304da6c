"""Draw the picture of a run: the curves over time, and the histogram of Y.

Y is the number of a parameter's updates since the group's last update (dist_gsync). Each worker has
the same colour in all panels, and each group has a line style.
"""

from typing import TYPE_CHECKING, Dict, NamedTuple, Optional, Sequence, Tuple, Union

from mxcluster.job.report import profile_panels, series, style
from mxcluster.job.report.series import Curve, Run, group_label, label, several_groups
from mxcluster.job.report.style import BAD, COLOURS, INK, Colour
from mxcluster.model.plan import Plan
from mxcluster.model.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LineStyle = Union[str, Tuple[float, Tuple[float, ...]]]  # a name, or an offset and lengths

STYLES: Tuple[LineStyle, ...] = (
    "-",
    (0, (6, 2)),
    (0, (1.5, 1.5)),
    (0, (6, 2, 1.5, 2)),
    (0, (10, 3)),
    (0, (6, 2, 1.5, 2, 1.5, 2)),
)
LEGEND_WORKERS = 12  # with more workers a colour scale replaces the legend
FEW_POINTS = 30  # a curve that is not smoothed, with so few points, has a mark at each point
# name of the unit, its seconds, longest run in this unit (seconds)
UNITS = (("seconds", 1, 300), ("minutes", 60, 4 * 3600), ("hours", 3600, float("inf")))


def draw(data: Run, plan: Plan, verdict: Verdict, cache_dir: Optional[str] = None) -> bytes:
    """Return the picture of a run as a PNG (bytes), or b"" if no series has a point.

    Args: `data` from series.collect(); `plan` and `verdict` of the job; `cache_dir` the folder of
    matplotlib's font list, None for a temporary folder.
    """
    shown = series.drawn(data)
    has_histogram = any(histogram.updates for histogram in data.histograms.values())
    panels = len(shown) + has_histogram + (profile_panels.NUMBER if data.profile else 0)
    if not panels:
        return b""
    with style.picture(panels, cache_dir) as (figure, axes):
        free = iter(axes)
        looks_of = looks(data, plan)
        for number, (curve, axis) in enumerate(zip(shown, free)):
            _lines(axis, curve, data, looks_of)
            _mark_failure(axis, data, verdict, number == 0)
        if has_histogram:
            _histogram(next(free), data, plan, looks_of)
        if data.profile:
            profile_panels.draw(data.profile, free)
        _legend(figure, axes, data, plan, looks_of)
        return style.png(figure)


class Look(NamedTuple):
    """The arguments of matplotlib for the line of a worker."""

    color: Colour
    linestyle: LineStyle
    linewidth: float
    alpha: float


def looks(data: Run, plan: Plan) -> Dict[int, Look]:
    """Return {worker index: Look}."""
    from matplotlib import colormaps

    indices = sorted(data.workers)
    many = len(indices) > LEGEND_WORKERS
    group_of = {index: group for group, members in enumerate(plan.groups) for index in members}
    styled = len(plan.groups) <= len(STYLES)
    found = {}
    for place, index in enumerate(indices):
        colour = (
            colormaps["turbo"](0.08 + 0.84 * place / (len(indices) - 1))
            if many
            else COLOURS[place % len(COLOURS)]
        )
        found[index] = Look(
            colour,
            STYLES[group_of.get(index, 0)] if styled else "-",
            linewidth=1.0 if many else 1.7,
            alpha=0.75 if many else 0.95,
        )
    return found


def _time_axis(data: Run) -> Tuple[str, float, float]:
    """Return the time axis of all panels: (unit, seconds in a unit, end of the axis in units).

    The unit is a name, such as "minutes".
    """
    longest = max(
        points[-1][0]
        for worker in data.workers.values()
        for points in worker.points.values()
        if points
    )
    unit, seconds = next((unit, size) for unit, size, most in UNITS if longest <= most)
    return unit, seconds, 1.02 * longest / seconds or 1.0


def _lines(axis: "Axes", curve: Curve, data: Run, looks: Dict[int, Look]) -> None:
    """Draw the curve of each worker over the time since the job's first event."""
    unit, size, end = _time_axis(data)
    for index, worker in sorted(data.workers.items()):
        points = worker.points[curve.name]
        few = not curve.smoothed and len(points) <= FEW_POINTS and len(looks) <= LEGEND_WORKERS
        axis.plot(
            [x / size for x, _ in points],
            [y for _, y in points],
            **looks[index]._asdict(),
            marker="o" if few else None,
            markersize=3,
        )
    axis.set_xlabel(unit)
    axis.set_title(curve.title)
    values = [y for worker in data.workers.values() for _, y in worker.points[curve.name]]
    if curve.axis == series.LOG and min(values) > 0 and max(values) > 30 * min(values):
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, place: "%g" % value)
    elif curve.axis == series.FROM_ZERO:
        axis.set_ylim(0, 1.08 * max(values) or 1)
    elif curve.axis == series.FRACTION:
        axis.set_ylim(max(0.0, min(values) - 0.03), min(1.005, max(values) + 0.03))
    axis.set_xlim(0, end)


def _histogram(axis: "Axes", data: Run, plan: Plan, looks: Dict[int, Look]) -> None:
    """Draw the histogram of Y: the percentage of each group's updates for each value of Y."""
    groups = sorted(group for group, found in data.histograms.items() if found.updates)
    highest = max(y for group in groups for y in data.histograms[group].counts)
    for place, group in enumerate(groups):
        histogram = data.histograms[group]
        counts = histogram.percents
        text = "group %s: mean %.2f" % (group_label(plan, group), histogram.mean or 0.0)
        colour = _group_colour(plan, group, looks)
        if len(groups) <= 4:
            style.bars(axis, counts, text, colour, place, len(groups))
        else:
            ys = range(1, highest + 1)
            axis.plot(
                list(ys),
                [counts.get(y, 0.0) for y in ys],
                linewidth=1.4,
                label=text if len(groups) <= 10 else None,
                color=colour,
            )
    style.whole_numbers(axis)
    axis.set_title("Histogram of Y")
    axis.set_xlabel("Y: updates of a parameter since the group's last update, this update included")
    axis.set_ylabel("% of the group's updates")
    axis.grid(axis="x", visible=False)
    if len(groups) <= 10:
        axis.legend(fontsize=9)


def _group_colour(plan: Plan, group: int, looks: Dict[int, Look]) -> Colour:
    """Return the colour of a group: the colour of the worker in the middle of the group."""
    return looks[middle(plan, group)].color


def middle(plan: Plan, group: int) -> int:
    """Return the worker in the middle of a group."""
    members = plan.groups[group]
    return members[(len(members) - 1) // 2]


def css(look: Look) -> str:
    """Return the colour of `look` as CSS has it, such as "#4c78d0"."""
    from matplotlib.colors import to_hex

    return str(to_hex(look.color))


def dash(look: Look) -> Sequence[float]:
    """Return the lengths of the dashes and gaps of `look` in pixels, () for a solid line."""
    style_of = look.linestyle
    return () if isinstance(style_of, str) else [2 * length for length in style_of[1]]


def _mark_failure(axis: "Axes", data: Run, verdict: Verdict, named: bool) -> None:
    """Draw a vertical line at the time of the first failure, if the job failed.

    Args: `named` True to write the name of the failed process beside the line.
    """
    failure = verdict.first_failure
    if failure and failure.time is not None:
        _, size, end = _time_axis(data)
        moment = (failure.time - (data.begin or 0.0)) / size
        axis.set_xlim(0, max(end, 1.02 * moment))
        axis.axvline(moment, color=BAD, linewidth=1.2, linestyle=(0, (2, 2)))
        if named:
            is_early = moment < axis.get_xlim()[1] / 2  # the text has more room on the other side
            axis.annotate(
                " %s failed " % failure.name,
                (moment, 0.97),
                ha="left" if is_early else "right",
                va="top",
                xycoords=("data", "axes fraction"),
                color=BAD,
                fontsize=9,
            )


def _legend(
    figure: "Figure", axes: Sequence["Axes"], data: Run, plan: Plan, looks: Dict[int, Look]
) -> None:
    """Draw a legend that names all workers.

    For more than LEGEND_WORKERS workers, draw a colour scale and the line styles of the groups.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.lines import Line2D

    drawn = [index for index in sorted(looks) if any(data.workers[index].points.values())]
    if not drawn:
        return
    if len(looks) <= LEGEND_WORKERS:
        handles = [
            Line2D([], [], label=label(plan, index), **looks[index]._asdict()) for index in drawn
        ]
    else:
        indices = sorted(looks)
        scale = ScalarMappable(
            BoundaryNorm([i - 0.5 for i in range(len(indices) + 1)], len(indices)),
            ListedColormap([looks[index].color for index in indices]),
        )
        bar = figure.colorbar(scale, ax=axes, location="right", aspect=50, pad=0.015, fraction=0.02)
        bar.ax.spines["outline"].set_visible(False)
        bar.set_label("worker")
        steps = range(0, len(indices), -(-len(indices) // 10))
        bar.set_ticks(list(steps), labels=[str(indices[place]) for place in steps])
        styled = several_groups(plan) and len(plan.groups) <= len(STYLES)
        handles = [
            Line2D(
                [],
                [],
                color=INK,
                linewidth=1.4,
                linestyle=STYLES[group],
                label="group %s (%d workers)" % (group_label(plan, group), len(members)),
            )
            for group, members in enumerate(plan.groups if styled else [])
        ]
    style.legend(figure, handles, 4)
