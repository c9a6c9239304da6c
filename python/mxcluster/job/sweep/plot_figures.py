"""Make the interactive figures of a sweep, from the rows that also give the picture."""

from typing import List, Optional, Sequence, Union

from mxcluster.job.report.figures import Bar, Bars, Figures, Line, Lines, Member
from mxcluster.job.report.style import COLOURS
from mxcluster.job.sweep import plots
from mxcluster.job.sweep.comparison_rows import BEST, ComparisonRow, Quartiles
from mxcluster.job.sweep.summary import BenchmarkRow
from mxcluster.model.sweep import OK

NO_FIGURES = Figures([], [])


def benchmark(rows: Sequence[BenchmarkRow]) -> Figures:
    """Return the figures of a benchmark: throughput, efficiency and time of a batch."""
    found = plots.series([row for row in rows if row.record.state == OK])
    members = [Member(label, _colour(place)) for place, (label, _) in enumerate(found)]
    speeds, efficiencies, times = [], [], []
    for place, (_, points) in enumerate(found):
        x = {"workers": [float(row.about.workers) for row in points]}
        speeds.append(Line(place, x, [row.record.samples_per_s for row in points], points=True))
        parts = [100 * (row.efficiency or 0.0) for row in points]
        efficiencies.append(Line(place, x, parts, points=True))
        medians, lows, highs = zip(*(row.times for row in points))
        times.append(Line(place, x, medians, lows, highs, points=True))
    titles = ("Samples per second", "Efficiency against the fewest workers", "Time of a batch")
    units = ("samples/s", "%", "ms: median, 10 % to 90 %")
    return Figures(
        members,
        [
            Lines(title, ["workers"], unit, lines, zero=True)
            for title, unit, lines in zip(titles, units, (speeds, efficiencies, times))
        ]
        if found
        else [],
    )


def comparison(
    rows: Sequence[ComparisonRow], target: float, limit: Optional[float] = None
) -> Figures:
    """Return the figures of a comparison, none while the best settings are unknown.

    Args: `rows` from `comparison_rows.rows`; `target` the accuracy from 0 to 1; `limit` the sum of
    the workers' speeds alone in samples/s, None if unknown.
    """
    best = [row for row in rows if BEST in row.kinds and row.jobs]
    if not best:
        return NO_FIGURES
    names = [row.title for row in best]
    members = [Member(row.label, _colour(place)) for place, row in enumerate(best)]
    lines = [
        Line(
            place,
            {
                "seconds": [one.seconds for one in job.readings],
                "samples": [float(one.samples) for one in job.readings],
            },
            [one.accuracy for one in job.readings],
        )
        for place, row in enumerate(best)
        for job in row.jobs
        if job.readings
    ]
    seeds = [
        (place, job.target_s)
        for place, row in enumerate(best)
        for job in row.jobs
        if job.target_s is not None
    ]
    figures: List[Union[Lines, Bars]] = [
        Lines(
            "Accuracy of the servers' weights, a line for each seed",
            ["seconds", "samples"],
            "",
            lines,
            level=target,
        ),
        Bars(
            "Seconds to an accuracy of %g %%: median, quartiles, each seed" % (100 * target),
            names,
            "seconds",
            [_medians("median", 0, [row.target_s for row in best])],
            points=seeds,
        ),
    ]
    if any(row.samples_per_s.median is not None for row in best):
        title = "Samples per second: median, quartiles" + ("; dashed: the limit" if limit else "")
        speeds = _medians("samples/s", 2, [row.samples_per_s for row in best])
        figures.append(Bars(title, names, "samples/s", [speeds], level=limit))
    if any(row.waited.median is not None for row in best):
        waits = [Quartiles(*map(_percent, row.waited)) for row in best]
        title = "Share of the training time in waits: median, quartiles"
        figures.append(Bars(title, names, "%", [_medians("% waited", 1, waits)]))
    return Figures(members, [*figures, *_of_y(best)])


def _medians(name: str, colour: int, each: Sequence[Quartiles]) -> Bar:
    """Return a bar for each median of `each`, with its quartiles."""
    low, median, high = zip(*each)
    return Bar(name, COLOURS[colour], median, low=low, high=high)


def _percent(value: Optional[float]) -> Optional[float]:
    return None if value is None else 100 * value


def _of_y(rows: Sequence[ComparisonRow]) -> List[Bars]:
    """Return [the histogram of Y of all seeds], or [] for schemes without Y."""
    ys = plots.histograms(rows)
    if ys is None:
        return []
    values = range(1, plots.MOST_BARS + 1)
    bars = [
        Bar("group %s" % group, _colour(place + 4), [found.percents.get(y) for y in values])
        for place, (group, found) in enumerate(ys.groups.items())
    ]
    unit = "% of the group's updates"
    return [Bars(ys.title, [str(y) for y in values], unit, bars, beside=True, x_title="Y")]


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]
