"""Make the interactive figures of a sweep, from the rows that also give the picture."""

from typing import List, Sequence, Union

from mxcluster.job.report.figures import Bar, Bars, Figures, Line, Lines, Member
from mxcluster.job.report.style import COLOURS
from mxcluster.job.sweep import plots
from mxcluster.job.sweep.summary import BEST, BenchmarkRow, ComparisonRow
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


def comparison(rows: Sequence[ComparisonRow], target: float) -> Figures:
    """Return the figures of a comparison, none while the best rates are unknown.

    Args: `rows` from `summary.comparison_rows`; `target` the accuracy from 0 to 1.
    """
    best = [row for row in rows if BEST in row.kinds and row.jobs]
    if not best:
        return NO_FIGURES
    names = [row.title for row in best]
    members = [
        Member("%s, lr %g" % (row.title, row.lr), _colour(place)) for place, row in enumerate(best)
    ]
    lines = [
        Line(place, {"seconds": [x for x, _ in job.curve]}, [y for _, y in job.curve])
        for place, row in enumerate(best)
        for job in row.jobs
    ]
    medians = Bar("median", COLOURS[0], [row.target_s.median for row in best])
    seeds = [
        (place, job.target_s)
        for place, row in enumerate(best)
        for job in row.jobs
        if job.target_s is not None
    ]
    speeds = Bar("samples/s", COLOURS[2], [row.samples_per_s.median for row in best])
    waits = [row.waited.median for row in best]
    waited = Bar("% waited", COLOURS[1], [None if one is None else 100 * one for one in waits])
    figures: List[Union[Lines, Bars]] = [
        Lines(
            "Validation accuracy, a line for each seed",
            ["seconds"],
            "",
            [line for line in lines if line.y],
            level=target,
        ),
        Bars(
            "Seconds to an accuracy of %g %%: median, and each seed" % (100 * target),
            names,
            "seconds",
            [medians],
            points=seeds,
        ),
        Bars("Samples per second while all workers train", names, "samples/s", [speeds]),
    ]
    if any(one is not None for one in waits):
        figures.append(Bars("Share of the training time in waits", names, "%", [waited]))
    return Figures(members, [*figures, *_of_y(best)])


def _of_y(rows: Sequence[ComparisonRow]) -> List[Bars]:
    """Return [the histogram of Y of all seeds], or [] for schemes without Y."""
    groups = plots.histograms(rows)
    if not groups:
        return []
    values = range(1, plots.MOST_BARS + 1)
    bars = [
        Bar("group %s" % group, _colour(place + 4), [found.percents.get(y) for y in values])
        for place, (group, found) in enumerate(groups.items())
    ]
    title = "Histogram of Y of GSP, all seeds"
    unit = "% of the group's updates"
    return [Bars(title, [str(y) for y in values], unit, bars, beside=True, x_title="Y")]


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]
