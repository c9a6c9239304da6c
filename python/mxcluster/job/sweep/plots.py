"""Draw the plots of a sweep, in the same style as the plots of single jobs."""

from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Tuple

from mxcluster.job.report import style
from mxcluster.job.report.series import Histogram
from mxcluster.job.sweep.comparison_rows import BEST, ComparisonRow, Quartiles
from mxcluster.job.sweep.summary import BenchmarkRow
from mxcluster.model.sweep import OK, BenchmarkAbout

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SERIES = ("network", "kv", "batch_size", "gpus", "scaling")
MOST_BARS = 8  # largest Y in a histogram
LABEL_ROOM = 0.1  # height for a line of text above the data, as a part of the y axis


def benchmark(rows: Sequence[BenchmarkRow], cache_dir: Optional[str] = None) -> bytes:
    """Return the plots of a benchmark as a PNG (bytes): throughput, efficiency and time per batch.

    The result is b"" without a successful job.

    Args: `rows` from `summary.benchmark_rows`; `cache_dir` the folder of matplotlib's font list,
    None for a temporary folder.
    """
    found = series([row for row in rows if row.record.state == OK])
    if not found:
        return b""
    with style.picture(3, cache_dir) as (figure, axes):
        titles = ("Samples per second", "Efficiency against the fewest workers", "Time of a batch")
        for place, (label, points) in enumerate(found):
            colour = style.COLOURS[place % len(style.COLOURS)]
            workers = [row.about.workers for row in points]
            speeds = [row.record.samples_per_s or 0.0 for row in points]
            axes[0].plot(workers, speeds, "o-", color=colour, label=label)
            axes[1].plot(
                workers, [100 * (row.efficiency or 0) for row in points], "o-", color=colour
            )
            medians = [row.times[0] for row in points]
            spread = [
                [max(0.0, median - low) for median, low, _ in (row.times for row in points)],
                [max(0.0, high - median) for median, _, high in (row.times for row in points)],
            ]
            axes[2].errorbar(workers, medians, spread, fmt="o-", capsize=3, color=colour)
        for axis, title in zip(axes, titles):
            axis.set_title(title)
            axis.set_xlabel("workers")
            axis.set_ylim(bottom=0)
            style.whole_numbers(axis)
        axes[1].set_ylabel("%")
        axes[2].set_ylabel("ms: median, 10 % to 90 %")
        style.legend(figure, axes[0].get_legend_handles_labels()[0], 3)
        return style.png(figure)


def comparison(
    rows: Sequence[ComparisonRow],
    target: float,
    limit: Optional[float] = None,
    cache_dir: Optional[str] = None,
) -> bytes:
    """Return the plots of a comparison as a PNG (bytes), b"" while the best settings are unknown.

    The plots show the jobs that measure, at each scheme's best setting: accuracy over time, time to
    the target, samples per second with the share of waiting, and the histogram of Y if a job has
    values of Y. A bar is a median, with its quartiles.

    Args: `rows` from `comparison_rows.rows`; `target` the accuracy from 0 to 1; `limit` the sum of
    the workers' speeds alone, None if unknown; `cache_dir` the folder of matplotlib's font list,
    None for a temporary folder.
    """
    best = [row for row in rows if BEST in row.kinds and row.jobs]
    if not best:
        return b""
    ys = histograms(best)
    with style.picture(4 if ys else 3, cache_dir) as (figure, axes):
        colours = {
            row.scheme: style.COLOURS[place % len(style.COLOURS)] for place, row in enumerate(best)
        }
        _accuracy(axes[0], best, target, colours)
        _times(axes[1], best, target, colours)
        _speeds(axes[2], best, limit, colours)
        if ys:
            _bars_of_y(axes[3], ys)
        style.legend(figure, axes[0].get_legend_handles_labels()[0], 3)
        return style.png(figure)


def series(rows: Sequence[BenchmarkRow]) -> List[Tuple[str, List[BenchmarkRow]]]:
    """Return [(label, rows by rising number of workers)] of the lines in the plots of a benchmark.

    A label names the values that differ between the lines. Weak and strong scaling share one job
    with one worker. This job belongs to the line of the first scaling in the knob `scaling`.
    """
    varying = [name for name in SERIES if len({str(getattr(row.about, name)) for row in rows}) > 1]
    if any(row.about.scaling == "strong" for row in rows):
        # The batch size of a worker differs inside a series of strong scaling.
        varying = [name for name in varying if name != "batch_size"] + ["total"]
    found = {}  # type: Dict[Tuple[str, ...], List[BenchmarkRow]]
    for row in rows:
        found.setdefault(_key(row.about, row.about.scaling, varying), []).append(row)
    for row in rows:
        if row.about.workers == 1:
            # Both kinds of scaling have this job, and it ran under the first one.
            other = "weak" if row.about.scaling == "strong" else "strong"
            points = found.get(_key(row.about, other, varying))
            if points is not None and all(one.about.workers > 1 for one in points):
                points.append(row)
    return [
        (", ".join(key) or "all jobs", sorted(points, key=lambda row: row.about.workers))
        for key, points in found.items()
    ]


def _key(about: BenchmarkAbout, scaling: str, varying: Sequence[str]) -> Tuple[str, ...]:
    """Return the label of a job's series under `scaling`, a text for each name of `varying`."""
    total = "%d in all" % (about.batch_size * about.workers)
    if scaling == "weak":
        total = "%d each" % about.batch_size
    values = dict(about.encode(), scaling=scaling, total=total)
    return tuple(str(values[name]) for name in varying)


def _accuracy(
    axis: "Axes", rows: Sequence[ComparisonRow], target: float, colours: Dict[str, str]
) -> None:
    for row in rows:
        for number, job in enumerate(row.jobs):
            axis.plot(
                [one.seconds for one in job.readings],
                [one.accuracy for one in job.readings],
                label=row.label if number == 0 else None,
                color=colours[row.scheme],
                linewidth=1.2,
                alpha=0.8,
            )
    axis.axhline(target, color=style.FAINT, linewidth=1, linestyle=(0, (2, 2)))
    axis.set_title("Accuracy of the servers' weights, a line for each seed")
    axis.set_xlabel("seconds")
    axis.set_xlim(left=0)


def _times(
    axis: "Axes", rows: Sequence[ComparisonRow], target: float, colours: Dict[str, str]
) -> None:
    for place, row in enumerate(rows):
        points = [job.target_s for job in row.jobs if job.target_s is not None]
        colour, time = colours[row.scheme], row.target_s
        axis.plot([place] * len(points), points, "o", color=colour, alpha=0.7)
        if time.median is not None:
            axis.plot([place - 0.25, place + 0.25], [time.median] * 2, color=colour, linewidth=3)
        if time.low is not None and time.high is not None:
            axis.bar(place, time.high - time.low, 0.5, time.low, color=colour, alpha=0.25)
        missed = len(row.jobs) - len(points)
        if missed:
            axis.annotate(
                "%d of %d never" % (missed, len(row.jobs)),
                (place, 0.98),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="top",
                fontsize=8,
                color=style.BAD,
            )
    axis.set_title("Seconds to an accuracy of %g %%: seeds, median, quartiles" % (100 * target))
    _named(axis, rows)
    axis.set_ylim(bottom=0)
    _leave_room(axis)  # for the marks at the highest point, and for the words about missed targets


def _speeds(
    axis: "Axes", rows: Sequence[ComparisonRow], limit: Optional[float], colours: Dict[str, str]
) -> None:
    for place, row in enumerate(rows):
        low, speed, high = row.samples_per_s
        if low is None or speed is None or high is None:  # a job shorter than its reports
            continue
        axis.bar(place, speed, 0.6, color=colours[row.scheme])
        axis.errorbar(place, speed, [[speed - low], [high - speed]], capsize=4, color=style.INK)
        if row.waited.median is not None:
            axis.annotate(
                _waits(row.waited),
                (place, 0),
                xytext=(0, 4),  # inside of the bar, away from the limit
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=8,
                color="white",
            )
    title = "Samples per second: median, quartiles"
    if limit is not None:
        axis.axhline(limit, color=style.FAINT, linewidth=1, linestyle=(0, (2, 2)))
        title += "; dashed: the limit"
    axis.set_title(title)
    _named(axis, rows)
    _leave_room(axis)


def _waits(waited: Quartiles) -> str:
    """Return the median and the quartiles of the share of waits, as three lines of text."""
    low, median, high = (100 * (one or 0.0) for one in waited)
    return "waits\n%.0f %%\n%.0f to %.0f" % (median, low, high)


class OfY(NamedTuple):
    """The histograms of Y of a row, over all its seeds."""

    title: str
    groups: Dict[str, Histogram]  # by the label of the group


def histograms(rows: Sequence[ComparisonRow]) -> Optional[OfY]:
    """Return the histograms of Y of the first row with values of Y, None without one."""
    for row in rows:
        found: Dict[str, Histogram] = {}
        for job in row.jobs:
            for group, updates in job.y.items():
                found.setdefault(group, Histogram()).add(updates.counts)
        if found:
            return OfY("Histogram of Y of %s, all seeds" % row.title, found)
    return None


def _bars_of_y(axis: "Axes", ys: OfY) -> None:
    for place, (group, histogram) in enumerate(ys.groups.items()):
        shown = {y: share for y, share in histogram.percents.items() if y <= MOST_BARS}
        colour = style.COLOURS[(place + 4) % len(style.COLOURS)]
        style.bars(axis, shown, "group %s" % group, colour, place, len(ys.groups))
    axis.set_title(ys.title)
    axis.set_xlabel("Y, up to %d" % MOST_BARS)
    axis.set_ylabel("% of the group's updates")
    axis.legend(fontsize=9)
    _leave_room(axis, len(ys.groups))
    style.whole_numbers(axis)


def _leave_room(axis: "Axes", lines: int = 1) -> None:
    """Extend the y axis at its top, so that words above the data lie inside the axes.

    Args: `axis` has its data already; `lines` of text, each with the height LABEL_ROOM.
    """
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + min(1.0, lines * LABEL_ROOM) * (high - low))


def _named(axis: "Axes", rows: Sequence[ComparisonRow]) -> None:
    axis.set_xticks(range(len(rows)), [row.title.replace(" ", "\n") for row in rows], fontsize=8)
    axis.grid(axis="x", visible=False)
