"""Make the interactive figures of a job: its curves, the histogram of Y, and its profile."""

from typing import Dict, List, Mapping, Optional, Sequence

from mxcluster.job.report import curves, resources, series
from mxcluster.job.report.figures import Bar, Bars, Figures, Line, Lines, Member, kept
from mxcluster.job.report.profile_panels import names_of
from mxcluster.job.report.series import AXES, Curve, Run
from mxcluster.job.report.style import COLOURS
from mxcluster.model.plan import WORKER, Plan
from mxcluster.model.profile import Profile
from mxcluster.model.verdict import Verdict

RESOURCE_LINES = 4  # a point of a resource takes the place of a fourth of a point of a curve


def of_job(data: Run, plan: Plan, verdict: Verdict) -> Figures:
    """Return the figures of a job: a figure for each curve, then Y, then those of the profile.

    Args: `data` from series.collect(); `plan` and `verdict` of the job.
    """
    drawn = series.drawn(data)
    workers = [index for index in sorted(data.workers) if any(data.workers[index].points.values())]
    looks = curves.looks(data, plan)
    members = [
        Member(series.label(plan, index), curves.css(looks[index]), curves.dash(looks[index]))
        for index in workers
    ]
    places = {index: place for place, index in enumerate(workers)}
    found: List[Lines] = [_curve(curve, data, places, len(drawn)) for curve in drawn]
    failure = verdict.first_failure
    if failure and failure.time is not None:
        moment = failure.time - (data.begin or 0.0)
        found = [one._replace(moment=moment, moment_name=failure.name) for one in found]
    return Figures(members, [*found, *_of_y(data, plan, looks), *of_profile(data.profile)])


def with_resources(shown: Figures, data: Run, plan: Plan, verdict: Verdict) -> Figures:
    """Return the figures of a job and those of its resources, with a member for each line.

    Args: `shown` from of_job(), whose members stay; see `of_job` for the others.
    """
    labels = {one.name: "%s, %s" % (one.name, one.host) for one in plan.processes}
    labels.update(
        {
            one.name: series.label(plan, one.index)
            for one in plan.of_role(WORKER)
            if one.index is not None
        }
    )
    members, places = list(shown.members), {one.name: row for row, one in enumerate(shown.members)}
    begin, found = data.begin or 0.0, []
    figures = resources.curves(data.resources, plan, begin)
    for figure in figures:
        lines = []
        for name, points in figure.lines.items():
            label = labels.get(name, name)
            if label not in places:
                places[label] = len(members)
                colour = COLOURS[len(members) % len(COLOURS)]
                members.append(Member(label, colour, (3, 3) if name in labels else (9, 3)))
            chosen = [
                points[row]
                for row in kept(len(points), RESOURCE_LINES * len(figures) * len(figure.lines))
            ]
            x = {AXES[0]: [time for time, _ in chosen]}
            lines.append(Line(places[label], x, [value for _, value in chosen]))
        found.append(
            Lines("%s (%s)" % (figure.title, figure.unit), [AXES[0]], "", lines, zero=True)
        )
    failure = verdict.first_failure
    if failure and failure.time is not None:
        moment = failure.time - begin
        found = [one._replace(moment=moment, moment_name=failure.name) for one in found]
    return Figures(members, [*shown.figures, *found])


def _curve(curve: Curve, data: Run, places: Mapping[int, int], figures: int) -> Lines:
    """Return the figure of a curve with a line for each worker that has the curve.

    Args: `places` {worker: its position among the members}; `figures` the number of curves.
    """
    lines = []
    axes = {AXES[0]}
    for index, place in places.items():
        readings = data.workers[index].readings[curve.name]
        if not readings:
            continue
        chosen = [readings[row] for row in kept(len(readings), len(places) * figures)]
        x = {axis: [getattr(reading, axis) for reading in chosen] for axis in AXES}
        known = {axis: values for axis, values in x.items() if _has_value(values)}
        axes.update(known)
        lines.append(Line(place, x, [reading.value for reading in chosen]))
    return Lines(
        title=curve.title,
        axes=[axis for axis in AXES if axis in axes],
        y_title="",
        lines=lines,
        smooth=curve.smoothed,
        zero=curve.axis == series.FROM_ZERO,
    )


def _has_value(values: Sequence[object]) -> bool:
    return any(value is not None for value in values)


def _of_y(data: Run, plan: Plan, looks: Dict[int, curves.Look]) -> List[Bars]:
    """Return [the histogram of Y], or [] without updates."""
    groups = [group for group, found in sorted(data.histograms.items()) if found.updates]
    if not groups:
        return []
    highest = max(y for group in groups for y in data.histograms[group].counts)
    bars = []
    for group in groups:
        histogram = data.histograms[group]
        name = "group %s, mean %.2f" % (series.group_label(plan, group), histogram.mean or 0.0)
        colour = curves.css(looks[curves.middle(plan, group)])
        shares = [histogram.percents.get(y) for y in range(1, highest + 1)]
        bars.append(Bar(name, colour, shares))
    return [
        Bars(
            "Histogram of Y",
            [str(y) for y in range(1, highest + 1)],
            "% of the group's updates",
            bars,
            beside=True,
            x_title="Y: updates of a parameter since the group's last update",
        )
    ]


def of_profile(profile: Optional[Profile]) -> List[Bars]:
    """Return the figures of the profile: speeds of workers, times of a step, speeds of servers."""
    if profile is None:
        return []
    workers = profile.workers
    names = names_of(workers)
    steps = [1e3 * profile.batch_size / worker.together.samples_per_s for worker in workers]
    bars = [Bar("alone", COLOURS[8], [one.alone.samples_per_s for one in workers], 0.8, pale=True)]
    for group, (label, members) in enumerate(zip(profile.labels, profile.groups)):
        speeds = [
            worker.together.samples_per_s if place in members else None
            for place, worker in enumerate(workers)
        ]
        colour = COLOURS[group % len(COLOURS)]
        bars.append(Bar("all at once, group %s" % label, colour, speeds, 0.5))
    exchanges = [1e3 * worker.exchange_s for worker in workers]
    servers = profile.servers
    return [
        Bars("Speed of the workers", names, "samples/s", bars),
        Bars(
            "A step, and the exchange with the servers",
            names,
            "milliseconds",
            [
                Bar("forward and backward", COLOURS[0], steps),
                Bar("push and pull", COLOURS[1], exchanges),
            ],
            stacked=True,
        ),
        Bars(
            "Speed of the servers",
            names_of(servers),
            "updates of the model a second",
            [Bar("updates a second", COLOURS[2], [server.updates_per_s for server in servers])],
        ),
    ]
